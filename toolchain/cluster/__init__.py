"""A throw-away Kubernetes cluster on loopback: a real control plane, kwok's nodes and, on Linux as root, a real one."""
