"""Reads the state of an agent's node: control groups and pods."""
