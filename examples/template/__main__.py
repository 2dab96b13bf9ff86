"""The platform: who may use how much GPU memory is in gpus.yaml."""

from gpu_tenancy import Platform

Platform("gpus", file="gpus.yaml").export()
