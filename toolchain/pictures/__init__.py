"""The pictures of the docs: drawings by d2, captures of a terminal, and a chart of the demo's day."""
