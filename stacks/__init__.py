"""Reads the settings of a stack, and declares the platform with these settings.

No package except stacks reads the stack's configuration.
"""
