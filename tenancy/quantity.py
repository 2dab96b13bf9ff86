"""Reads Kubernetes quantities in every spelling, and writes them in the canonical spelling.

Source: k8s.io/apimachinery pkg/api/resource/quantity.go. The API server changes the quantity 5000 to "5k". Code that
reads only digits would not understand "5k". If the stack wrote 5000 instead of "5k", Pulumi would show a difference
after every refresh.
"""

import math
import re
from fractions import Fraction
from functools import lru_cache

_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_SCALES = {suffix: Fraction(f"1e{exponent}") for suffix, exponent in _DECIMAL.items()} | {
    suffix: Fraction(2**exponent) for suffix, exponent in _BINARY.items()
}
# The code refuses an exponent of four digits, because Python reads at most 4300 digits.
_FORM = re.compile(r"([+-]?)([0-9]*)\.?([0-9]*)(?:[eE]([+-]?0*[0-9]{1,3})|([A-Za-z]{0,2}))")
_MOST_DIGITS = 1000
# The smallest unit. An amount below one nano is rounded up, away from 0.
_NANO = 10**9
_MOST_BINARY = Fraction(2**63 - 1)
# Kubernetes reads a text with a suffix and without digits as 0. Kubernetes needs digits before the suffixes below, and
# before suffixes smaller than nano.
_NEED_DIGITS = ("Pi", "Ei")


class QuantityError(ValueError):
    """The text is not a Kubernetes quantity, or is a fraction where a whole number is necessary."""


def parse(value: object) -> Fraction:
    """Returns the exact value of a quantity in any spelling: 5000, 5000.0, "5000", "5k", "5e3", "4.8828125Ki",
    "5000000m".

    Raises QuantityError for all other values, such as a bool, NaN, an empty string or an unknown suffix.
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = repr(value)  # the text has the digits of the float, so that 0.1 is exactly one tenth
    if not isinstance(value, str) or not value:
        raise QuantityError(f"{value!r} is not a quantity")
    return _exact(value)


@lru_cache(maxsize=4096)  # caches the result, because the same quantities are read many times
def _exact(text: str) -> Fraction:
    match = _FORM.fullmatch(text)
    if match is None:
        raise QuantityError(f"{text!r} is not a quantity")
    sign, before, after, exponent, suffix = match.groups()
    scale = Fraction(f"1e{exponent}") if exponent else _SCALES.get(suffix)
    digits = before + after
    if len(digits) > _MOST_DIGITS or scale is None or (not digits and (suffix in _NEED_DIGITS or scale * _NANO < 1)):
        raise QuantityError(f"{text!r} is not a quantity")
    amount = _representable(Fraction(int(digits or "0"), 10 ** len(after)) * scale)
    if suffix in _BINARY:
        amount = min(amount, _MOST_BINARY)
    return -amount if sign == "-" else amount


def _representable(amount: Fraction) -> Fraction:
    return amount if amount.denominator == 1 else Fraction(math.ceil(amount * _NANO), _NANO)


def whole(value: object) -> int:
    """Reads a quantity that must be a whole number, such as the MiB of an extended resource.

    Raises QuantityError for a fraction too.
    """
    exact = parse(value)
    if exact.denominator != 1:
        raise QuantityError(f"{value!r} is not a whole number")
    return exact.numerator


def canonical(amount: int) -> str:
    """Returns the decimal form that the API server uses for a whole amount: "14k" for 14000, and "13300" for 13300."""
    if amount == 0:
        return "0"
    for suffix in ("E", "P", "T", "G", "M", "k"):
        size = 10 ** _DECIMAL[suffix]
        if amount % size == 0:
            return f"{amount // size}{suffix}"
    return str(amount)


def canonical_text(value: object) -> str:
    """Returns the canonical form of any amount of at least 0: "0.5" is "500m", "1024Mi" is "1Gi".

    Raises QuantityError for an amount below 0, and for a text that is no quantity.
    """
    exact = parse(value)
    if exact < 0:
        raise QuantityError(f"{value!r} is below 0")
    if isinstance(value, str) and value.endswith("i") and exact.denominator == 1:
        sizes = ((suffix, 2**exponent) for suffix, exponent in reversed(_BINARY.items()))
        fitting = ((suffix, size) for suffix, size in sizes if exact and exact % size == 0)
        suffix, size = next(fitting, ("", 1))
        return f"{exact // size}{suffix}"
    if exact.denominator == 1:
        return canonical(exact.numerator)
    suffix = next(each for each in ("m", "u", "n") if (exact / _SCALES[each]).denominator == 1)
    return f"{exact / _SCALES[suffix]}{suffix}"


def canonical_mib(mib: int) -> str:
    """Returns host memory in the binary form of the API server: "8Gi" for 8192 MiB, and "5000Mi" for 5000 MiB."""
    for suffix in ("Ei", "Pi", "Ti", "Gi"):
        size = 2 ** (_BINARY[suffix] - 20)
        if mib and mib % size == 0:
            return f"{mib // size}{suffix}"
    return f"{mib}Mi" if mib else "0"
