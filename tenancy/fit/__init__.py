"""Finds devices for new pods, and the smallest change after which the pods fit."""
