"""Reads the settings of a stack, declares the platform with these settings, and runs Pulumi for the operator.

No package except stacks reads the stack's configuration, and no package except stacks changes a stack.
"""
