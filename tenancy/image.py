"""Decides whether an image reference is pinned. With a pinned reference, the judged image is the image that runs."""

import re

PINNED = "a digest (@sha256:…) or a full version (:1.2.3)"
_DIGEST = re.compile(r"@sha256:[0-9a-f]{64}$")
_FULL_VERSION = re.compile(r":v?\d+\.\d+\.\d+[-+._A-Za-z0-9]*$")


def is_pinned(image: str) -> bool:
    """Returns True if the image has a digest.

    An image with a full version counts as pinned too. Some projects rebuild the image of a full version with newer
    packages of the operating system, such as Docker's official images.
    """
    return has_digest(image) or bool(_FULL_VERSION.search(image))


def has_digest(image: str) -> bool:
    return bool(_DIGEST.search(image))
