"""The tests. unit/ needs no server, integration/ one real program, e2e/ a cluster, and simulation/ virtual time.

What several tests use is in support/. benchmarks/ measures, and golden/ has all objects of some stacks.
"""
