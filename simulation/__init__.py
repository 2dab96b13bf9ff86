"""A cluster of this process, in virtual time: the agents' own code over an API server, devices and workloads."""
