"""What any agent's process needs: settings, logs, time, HTTP, metrics. Knows nothing of Kubernetes."""
