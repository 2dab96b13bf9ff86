"""Declares the objects in the file that the variable BENCH_OBJECTS names."""

import os

if path := os.environ.get("BENCH_OBJECTS"):
    from objects import declare_all

    declare_all(path)
