"""Units of memory, and how exactly it is measured: said once, for alerts, rules and agents alike."""

MIB = 2**20  # bytes
# Pages of 4 KiB, by which the kernel counts on x86-64.
PAGES_PER_MIB = MIB // 4096
# Of a device's memory: how far its figures may be apart. The driver keeps some, and they are not read at one moment.
TOLERANCE = 0.05
