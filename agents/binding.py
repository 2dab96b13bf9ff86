"""Bind: the pod's node and its devices, in one write. A pod is never bound without its devices (FACTS in the API:
assignPod in pkg/registry/core/pod/storage merges the Binding's annotations as it sets the node)."""
