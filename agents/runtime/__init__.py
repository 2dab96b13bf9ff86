"""Settings, logs, time, HTTP and metrics of every agent."""
