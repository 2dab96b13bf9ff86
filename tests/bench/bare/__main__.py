"""Registers the objects in the file that BENCH_OBJECTS names, or none."""

import json
import os
from pathlib import Path

path = os.environ.get("BENCH_OBJECTS")
if path:
    import pulumi_kubernetes as k8s

    for number, (token, inputs) in enumerate(json.loads(Path(path).read_text())):
        group, _, kind = token.removeprefix("kubernetes:").partition(":")
        module, _, version = group.partition("/")
        body = {key: value for key, value in inputs.items() if key not in ("apiVersion", "kind")}
        if kind == "Release":
            k8s.helm.v3.Release(
                f"object-{number}", **{("skip_crds" if k == "skipCrds" else k): v for k, v in body.items()}
            )
        else:
            k8s.apiextensions.CustomResource(
                f"object-{number}", api_version=inputs["apiVersion"], kind=inputs["kind"], **body
            )
