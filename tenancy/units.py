"""Defines units of memory, and the tolerance with which two measurements of memory are compared."""

MIB = 2**20  # The bytes of one MiB.
# The kernel counts memory in pages of 4 KiB on x86-64.
PAGES_PER_MIB = MIB // 4096
# Two measurements of a device's memory at different times may differ by this fraction.
TOLERANCE = 0.05
