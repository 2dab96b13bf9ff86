"""Draws pools. chart.py describes the pools of a ledger as plain data (model.py), which text.py and html.py draw.

The plugin describes the devices of the cluster as the same data, so a new kind of part goes into model.py.
"""
