"""Tests the package gpu_tenancy."""
