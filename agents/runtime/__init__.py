"""The settings, logs, time, HTTP and metrics of all agents."""
