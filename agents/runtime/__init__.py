"""Settings, logs, time, HTTP and metrics for all agents."""
