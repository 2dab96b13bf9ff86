"""Puts a stack right after a run that was killed: its lock, and the objects that were under way (docs/adr/0008)."""
