"""Reads the settings of a stack, and declares the platform with these settings.

No other package reads the stack's configuration.
"""
