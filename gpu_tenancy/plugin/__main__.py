"""Starts the plugin. The engine runs this folder, in an environment with the package."""

from gpu_tenancy.plugin.provider import main

main()
