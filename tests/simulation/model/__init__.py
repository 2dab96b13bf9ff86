"""Simulates a cluster in virtual time: the API server, kubelets, kube-scheduler, devices and workloads, around the
agents' real code. Only what the cluster does is here; faults, plans and the promises that are checked are in
tests/simulation.
"""
