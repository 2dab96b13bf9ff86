"""The installer: tools lists, pins reads the versions, ways obtains, store keeps, cli does what was asked."""
