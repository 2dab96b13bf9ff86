"""Provides every agent's settings, logs, time, HTTP and metrics."""
