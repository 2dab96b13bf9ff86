"""The domain.

Contains pure functions and frozen dataclasses. The package uses only the standard library, and reads no file, clock or
environment.
"""
