"""Defines units and the tolerance of memory, for alerts, rules and agents."""

MIB = 2**20  # in bytes
# The kernel counts memory in pages of 4 KiB on x86-64.
PAGES_PER_MIB = MIB // 4096
# The fraction by which two figures of a device's memory may differ, because they are read at different moments.
TOLERANCE = 0.05
