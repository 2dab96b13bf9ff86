"""What the engine runs of this folder, in an environment where the package is installed."""

from gpu_tenancy.plugin.provider import main

main()
