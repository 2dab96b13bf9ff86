"""Starts the plugin. Pulumi's engine runs this folder in a virtual environment with the package."""

from gpu_tenancy.plugin.provider import main

main()
