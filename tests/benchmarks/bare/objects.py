"""Declares the objects of another program with pulumi_kubernetes' classes and without components."""

import json
import re
from pathlib import Path
from typing import Any

import pulumi_kubernetes as k8s


def declare_all(path: str) -> None:
    for number, (token, inputs) in enumerate(json.loads(Path(path).read_text())):
        declare(f"object-{number}", token, inputs)


def declare(name: str, token: str, inputs: dict[str, Any]) -> None:
    group, version, kind = token.removeprefix("kubernetes:").replace("/", ":").split(":")
    body = {re.sub("[A-Z]", lambda letter: f"_{letter.group().lower()}", key): inputs[key] for key in inputs}
    api_version = body.pop("api_version", None)
    body.pop("kind", None)
    typed = getattr(getattr(getattr(k8s, group.partition(".")[0], None), version, None), kind, None)
    if kind == "Release":
        k8s.helm.v3.Release(name, **body)
    elif typed is not None:
        typed(name, **body)
    else:
        metadata, spec = body.pop("metadata"), body.pop("spec", body)
        k8s.apiextensions.CustomResource(name, api_version=api_version, kind=kind, metadata=metadata, spec=spec)
