"""Finds where new pods fit, and the smallest change that makes them fit."""
