"""Defines units of memory, and the tolerance with which two measurements of memory are compared."""

MIB = 2**20  # The bytes of one MiB.
# The kernel counts memory in pages of 4 KiB on x86-64.
PAGES_PER_MIB = MIB // 4096
# The fraction by which two measurements of a device's memory may differ, because they are taken at different times.
TOLERANCE = 0.05
