"""The Kubernetes API: a client, watches, and objects that several agents use.

The operator's commands reach the API through kubectl (kubectl.py, forward.py). No agent uses these two modules.
"""
