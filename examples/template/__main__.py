"""Declares the platform. gpus.yaml has the budget of each workload."""

from gpu_tenancy import Platform

Platform("gpus", file="gpus.yaml").export()
