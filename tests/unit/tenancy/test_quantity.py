"""Tests how quantities are read and written. tests/integration/judge compares them with Kubernetes' code."""

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenancy.quantity import QuantityError, canonical, canonical_text, parse, whole

AMOUNTS = st.integers(min_value=0, max_value=2**63 - 1)


def in_nano(amount: Fraction) -> Fraction:
    return Fraction(math.copysign(1, amount)) * math.ceil(abs(amount) * 10**9) / 10**9


@given(AMOUNTS)
def test_the_canonical_form_reads_back(amount: int) -> None:
    assert parse(canonical(amount)) == amount


@given(st.integers(min_value=0, max_value=2**50))
def test_every_spelling_of_a_number_is_equal(amount: int) -> None:
    with localcontext(prec=100):
        in_ki = format(Decimal(amount) / 1024, "f")
    spellings: list[object] = [
        *(amount, float(amount), str(amount), f"+{amount}", f"{amount}.0", f"{amount}e0", f"{amount}000m"),
        *(f"{amount}000000000n", f"{amount}E+0", f"{in_ki}Ki", canonical(amount)),
    ]
    assert {parse(spelling) for spelling in spellings} == {Fraction(amount)}


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_float_is_read_by_its_digits(number: float) -> None:
    assert parse(number) == in_nano(Fraction(Decimal(repr(number))))


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        *((8, "8"), ("8", "8"), (2.0, "2"), ("5000", "5k"), ("0.5", "500m"), (0.25, "250m"), ("1500m", "1500m")),
        *(("1024Mi", "1Gi"), ("1.5Gi", "1536Mi"), ("512Ki", "512Ki"), ("0.5Ki", "512"), ("0Gi", "0")),
        *((0.3333, "333300u"), ("0.0001", "100u"), (1 / 3, "333333334n"), ("1e-9", "1n"), ("1.5u", "1500n")),
    ],
)
def test_the_canonical_form_of_any_amount_is_the_api_servers(amount: object, text: str) -> None:
    assert canonical_text(amount) == text
    assert parse(text) == parse(amount)


@pytest.mark.parametrize("amount", ["-1", "x", None, True])
def test_an_amount_without_a_canonical_form_is_refused(amount: object) -> None:
    with pytest.raises(QuantityError):
        canonical_text(amount)


@pytest.mark.parametrize("value", ["0.5", 30.5, "5001m", "1n"])
def test_whole_refuses_fractions(value: object) -> None:
    with pytest.raises(QuantityError, match="is not a whole number"):
        whole(value)
