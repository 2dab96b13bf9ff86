"""Draws the pictures of the docs: diagrams by d2, the output of commands, and a chart of a recorded demo."""
