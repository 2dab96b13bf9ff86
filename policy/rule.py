"""A rule with examples of mistakes that the rule refuses.

docs/reference/policy-rules.md and the tests are generated from the examples.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from policy.finding import Finding
from policy.graph import Graph

# Most examples change the container of this resident in the small program.
A_RESIDENT = "Deployment llama-swap/llama-swap"
MAIN = "spec.template.spec.containers.0"


@dataclass(frozen=True)
class Example:
    """Describes a mistake that breaks the rule and no other rule, and what to write instead.

    `key` is in prod's stack file if `of` is None. A string in `of` names an object of a small program by kind and name,
    or JSON in a ConfigMap (`ConfigMap NAMESPACE/NAME: FILE`). A map in `of` is one more object.
    """

    key: str = ""  # with dots; numbers are positions in lists. Empty if the object itself is the mistake
    wrong: Any = None
    right: Any = None
    of: str | Mapping[str, Any] | None = None
    given: Mapping[str, Any] = field(default_factory=dict)  # other keys of the stack file
    instead: str = ""  # words that replace `right` on the page
    is_beside: bool = False  # a consumer's program, judged by the platform's ledger


@dataclass(frozen=True)
class Rule:
    """Wraps a pure function from the graph to findings. The messages of the findings start with `id`."""

    id: str
    examples: tuple[Example, ...]
    check: Callable[[Graph], Iterable[Finding]]

    @property
    def description(self) -> str:
        """Returns the first paragraph of the function's docstring. The sentence is true of every graph that passes the
        rule."""
        return " ".join((self.check.__doc__ or "").partition("\n\n")[0].split())


def rule(name: str, *examples: Example) -> Callable[[Callable[[Graph], Iterable[Finding]]], Rule]:
    """Makes a rule of the function. The pack runs every rule in the modules of policy/rules."""
    return lambda check: Rule(name, examples, check)


def an_object(api_version: str, kind: str, name: str, namespace: str | None = None, **body: Any) -> dict[str, Any]:
    """Makes an object for an example."""
    metadata = {"name": name} | ({} if namespace is None else {"namespace": namespace})
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **body}


def a_deployment(name: str, namespace: str, **pod_spec: Any) -> dict[str, Any]:
    """Makes a Deployment for an example. MAIN is the Deployment's container."""
    spec = {"containers": [{"name": "main", "image": "ghcr.io/a/b:1.2.3"}], **pod_spec}
    return an_object("apps/v1", "Deployment", name, namespace, spec={"template": {"spec": spec}})


def memory(request: str, limit: str) -> dict[str, dict[str, str]]:
    """Returns the resources of a container that requests host memory."""
    return {"requests": {"memory": request}, "limits": {"memory": limit}}
