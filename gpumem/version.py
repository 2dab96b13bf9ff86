"""The version of the plugin. A test compares the version with pyproject.toml."""

VERSION = "0.1.0"
