"""Units and tolerance of memory, for alerts, rules and agents."""

MIB = 2**20  # bytes
# Pages of 4 KiB, by which the kernel counts on x86-64.
PAGES_PER_MIB = MIB // 4096
# The fraction by which two figures of a device's memory may differ: they are read at different moments.
TOLERANCE = 0.05
