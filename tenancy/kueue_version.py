"""Decides which versions of Kueue reliably enforce quotas (docs/adr/0002)."""

QUOTAS_HOLD_SINCE = "0.18.6, 0.19.2 or later"


def enforces_quotas(version: str) -> bool:
    """Returns False for a version in which pods can bypass the quotas, such as 0.18.1."""
    release = tuple(int(part) for part in version.split("."))
    return not (release < (0, 18, 6) or (0, 19, 0) <= release < (0, 19, 2))
