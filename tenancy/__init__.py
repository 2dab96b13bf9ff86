"""The domain.

Contains pure functions and frozen dataclasses. The package uses only the standard library. The package does not read
files, the clock or the environment.
"""
