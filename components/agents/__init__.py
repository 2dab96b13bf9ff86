"""The agents as the stack declares them: each module holds one agent's settings, rights and workload."""
