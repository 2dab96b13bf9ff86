"""Tests of gpu_tenancy/."""
