"""The installer: tools lists, pins reads the versions, ways obtains, golang builds, store keeps, cli is the command."""
