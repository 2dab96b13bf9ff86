"""Admission policies: each module has those for one subject."""
