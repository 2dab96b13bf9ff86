"""Puts small mistakes (mutants) into agents/ and tenancy/, and lists the tests that find them.

`python -m tests.mutants` tries all mutants, and writes results.md.
"""
