"""Rules, and examples of mistakes that the rules refuse.

docs/reference/policy-rules.md shows the examples, and the tests run them.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from policy.finding import Finding
from policy.graph import Graph

# Most examples change the container of this resident in a small test program.
A_RESIDENT = "Deployment llama-swap/llama-swap"
MAIN = "spec.template.spec.containers.0"


@dataclass(frozen=True)
class Example:
    """Describes a mistake and its correction. The mistake of an example breaks exactly one rule.

    If `of` is None, `key` is a key of prod's stack file. If `of` is a string, it names an object of a test program by
    kind and name, or the JSON in a ConfigMap (`ConfigMap NAMESPACE/NAME: FILE`). If `of` is a map, it is an additional
    object of the test program.
    """

    key: str = ""  # the path, such as `spec.rules.0`; empty if the whole object is the mistake
    wrong: Any = None
    right: Any = None
    of: str | Mapping[str, Any] | None = None
    given: Mapping[str, Any] = field(default_factory=dict)  # The example also sets further keys of the stack file.
    instead: str = ""  # The page of rules shows this sentence in place of `right`.
    is_beside: bool = False  # True if the program is not the platform's program


@dataclass(frozen=True)
class Rule:
    """A rule: a pure function from the graph to findings. The messages of a rule's findings start with the rule's
    `id`."""

    id: str
    examples: tuple[Example, ...]
    check: Callable[[Graph], Iterable[Finding]]

    @property
    def description(self) -> str:
        """Returns the first paragraph of the function's docstring. The first paragraph describes every graph that
        passes the rule."""
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
