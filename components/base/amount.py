"""The amounts of resources in settings, as Kubernetes quantities."""

from typing import Annotated

from pydantic import PlainValidator, WithJsonSchema

from tenancy.quantity import QuantityError, canonical_text, parse


def _amount(value: object) -> int | str:
    try:
        exact = parse(value)
        if exact < 0:
            raise ValueError(f"must be at least 0 (got {value})")
        if (exact * 1000).denominator != 1:
            raise ValueError(f"must have no digits below a thousandth (got {value})")
        is_binary = isinstance(value, str) and value.endswith("i")
        return canonical_text(value) if is_binary or exact.denominator != 1 else exact.numerator
    except QuantityError:
        raise ValueError(f"must be a Kubernetes quantity such as 8, 500m or 32Gi (got {value!r})") from None


Amount = Annotated[
    int | str,
    PlainValidator(_amount),
    WithJsonSchema({"type": ["integer", "string"], "minimum": 0, "examples": [1]}),
]
