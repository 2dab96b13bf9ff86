"""Registers the objects in the file that BENCH_OBJECTS names, or none."""

import os

if path := os.environ.get("BENCH_OBJECTS"):
    from objects import declare_all

    declare_all(path)
