"""The agents as they are declared: settings, rights and workloads, a module an agent."""
