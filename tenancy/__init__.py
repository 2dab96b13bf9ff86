"""The domain. Pure functions and frozen dataclasses; standard library only; no I/O, clock, environment."""
