"""What the API server stamps on pods and what it denies: admission policies, a module a subject."""
