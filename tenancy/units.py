"""Defines units of memory, and the fraction by which two measurements of memory may differ."""

MIB = 2**20  # The bytes of one MiB.
# On x86-64, the kernel counts memory in pages of 4 KiB.
PAGES_PER_MIB = MIB // 4096
# Two measurements of a device's memory at different times may differ by this fraction.
TOLERANCE = 0.05
