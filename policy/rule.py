"""Rules, and examples of mistakes that the rules refuse.

docs/reference/policy-rules.md shows the examples, and the tests run them.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from policy.finding import Finding
from policy.graph import Graph

# Most examples change this resident's container in a small test program.
A_RESIDENT = "Deployment llama-swap/llama-swap"
MAIN = "spec.template.spec.containers.0"


@dataclass(frozen=True)
class Example:
    """Describes a mistake that breaks one rule and no other, and the correction.

    If `of` is None, `key` is a key of prod's stack file. If `of` is a string, it names an object of a small test
    program by kind and name, or a ConfigMap's JSON (`ConfigMap NAMESPACE/NAME: FILE`). If `of` is a map, it is an
    additional object of that program.
    """

    key: str = ""  # the path with dots; a number is a position in a list; empty if the whole object is the mistake
    wrong: Any = None
    right: Any = None
    of: str | Mapping[str, Any] | None = None
    given: Mapping[str, Any] = field(default_factory=dict)  # other keys of the stack file that the example sets
    instead: str = ""  # text that the page shows instead of `right`
    is_beside: bool = False  # True for another program, which the pack judges by the platform's ledger


@dataclass(frozen=True)
class Rule:
    """A rule: a pure function from the graph to findings. The messages of its findings start with `id`."""

    id: str
    examples: tuple[Example, ...]
    check: Callable[[Graph], Iterable[Finding]]

    @property
    def description(self) -> str:
        """Returns the first paragraph of the function's docstring. The paragraph describes every graph that passes the
        rule."""
        return " ".join((self.check.__doc__ or "").partition("\n\n")[0].split())


def rule(name: str, *examples: Example) -> Callable[[Callable[[Graph], Iterable[Finding]]], Rule]:
    """Returns a decorator that turns a function into a rule. The pack runs every rule in the modules of
    policy/rules."""
    return lambda check: Rule(name, examples, check)


def an_object(api_version: str, kind: str, name: str, namespace: str | None = None, **body: Any) -> dict[str, Any]:
    """Returns the manifest of an object for an example."""
    metadata = {"name": name} | ({} if namespace is None else {"namespace": namespace})
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **body}


def a_deployment(name: str, namespace: str, **pod_spec: Any) -> dict[str, Any]:
    """Returns a Deployment for an example. MAIN is the path of its container."""
    spec = {"containers": [{"name": "main", "image": "ghcr.io/a/b:1.2.3"}], **pod_spec}
    return an_object("apps/v1", "Deployment", name, namespace, spec={"template": {"spec": spec}})


def memory_resources(request: str, limit: str) -> dict[str, dict[str, str]]:
    """Returns the `resources` of a container with this request and limit of host memory."""
    return {"requests": {"memory": request}, "limits": {"memory": limit}}
