"""The domain.

Contains pure functions and frozen dataclasses. The package uses only the standard library. It does not read files, the
clock or the environment.
"""
