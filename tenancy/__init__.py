"""The domain.

Pure functions and frozen dataclasses. The package uses only the standard library. The package never reads files, the
clock or the environment.
"""
