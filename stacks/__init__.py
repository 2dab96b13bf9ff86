"""Composition: settings (the only reader of the stack's configuration) and the platform they describe."""
