"""Repairs the lock and the state of a stack after a Pulumi run was killed (docs/adr/0008)."""
