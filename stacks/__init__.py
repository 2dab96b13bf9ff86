"""Reads the settings of a stack, and declares the platform that they describe.

No other package reads the stack's configuration.
"""
