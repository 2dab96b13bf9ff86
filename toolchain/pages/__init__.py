"""Generates pages of docs/reference from the code (`python -m toolchain.pages`)."""
