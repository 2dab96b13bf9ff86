"""Generates pages of docs/reference from the code (`make schema`).

Each module writes one page, or one kind of page. What a page says is in the code that the page describes.
"""
