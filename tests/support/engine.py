"""Records the resource graph of a Pulumi program as plain data.

`pulumi.runtime.Mocks` does not receive parents, dependencies or options. The recorder therefore reads the registration
requests of the SDK.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from unittest import mock

import pulumi
from google.protobuf import empty_pb2
from pulumi.runtime import mocks, rpc, settings
from pulumi.runtime.proto import resource_pb2, source_pb2

from tenancy.names import EXEMPT_BY_NAME

PROJECT, STACK = "gpu-tenancy", "test"
# The annotation of each patch.
PATCHED = {"pulumi.com/patchFieldManager": "gpu-tenancy/test"}


@dataclass(frozen=True)
class Recorded:
    urn: str
    type: str
    name: str
    custom: bool
    inputs: Mapping[str, Any]
    parent_urn: str
    dependency_urns: frozenset[str]
    request: Any = field(repr=False)

    @property
    def kind(self) -> str:
        return self.type.rpartition(":")[2]


@dataclass(frozen=True)
class Graph:
    resources: tuple[Recorded, ...]
    outputs: Mapping[str, Mapping[str, Any]]
    exports: Mapping[str, Any]

    def all(self, kind: str) -> list[Recorded]:
        """The order of registration is not deterministic."""
        return sorted((r for r in self.resources if r.kind == kind), key=lambda r: r.name)

    def one(self, kind: str, name: str | None = None) -> Recorded:
        """Raises LookupError unless exactly one resource has the kind and the name."""
        found = [r for r in self.all(kind) if name in (None, r.name)]
        if len(found) != 1:
            there = ", ".join(sorted(f"{r.kind} {r.name}" for r in self.resources))
            raise LookupError(f"{len(found)} of {kind} {name or ''}; the graph has {there}")
        return found[0]

    def objects(self) -> list[Mapping[str, Any]]:
        """Returns all objects but the patch of kube-system, which has no field and identifies the cluster."""
        found = [r.inputs for r in self.resources if r.custom and {"apiVersion", "kind"} <= r.inputs.keys()]
        return [_whole(inputs) for inputs in found if inputs["metadata"]["name"] != EXEMPT_BY_NAME]

    def parent(self, resource: Recorded) -> Recorded | None:
        return self._by_urn.get(resource.parent_urn)

    def children(self, resource: Recorded) -> list[Recorded]:
        return [r for r in self.resources if r.parent_urn == resource.urn]

    def depends_on(self, later: Recorded, earlier: Recorded) -> bool:
        """Source: DependenciesOf in Pulumi's pkg/resource/graph/dependency_graph.go."""
        seen: set[str] = set()
        front = {later.urn}
        while front:
            known = [self._by_urn[urn] for urn in front if urn in self._by_urn]
            front = {urn for r in known for urn in (*r.dependency_urns, r.parent_urn)} - seen
            seen |= front
        return earlier.urn in seen

    def outputs_of(self, component: Recorded) -> Mapping[str, Any]:
        """Raises KeyError if the component has registered no outputs."""
        return self.outputs[component.urn]

    @cached_property
    def _by_urn(self) -> Mapping[str, Recorded]:
        return {r.urn: r for r in self.resources}


def _whole(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _whole(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_whole(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


class _NoProvider(mocks.Mocks):
    def new_resource(self, args: mocks.MockResourceArgs) -> tuple[str, dict[str, Any]]:
        return "", {}  # the stack itself

    def call(self, args: mocks.MockCallArgs) -> tuple[dict[str, Any], None]:
        raise NotImplementedError(f"{args.token}: the program may not invoke a provider")


class Recorder(mocks.MockMonitor):
    def __init__(self) -> None:
        super().__init__(_NoProvider())
        self.recorded: list[Recorded] = []
        self.outputs: dict[str, Mapping[str, Any]] = {}

    def RegisterResource(self, request: Any) -> Any:  # noqa: N802 (the SDK's name)
        if request.type == "pulumi:pulumi:Stack":
            return super().RegisterResource(request)
        urn = self.make_urn(request.parent, request.type, request.name)
        if any(known.urn == urn for known in self.recorded):
            raise ValueError(f"duplicate resource {urn}")
        self.recorded.append(
            Recorded(
                urn=urn,
                type=request.type,
                name=request.name,
                custom=request.custom,
                inputs=rpc.deserialize_properties(request.object),
                parent_urn=request.parent,
                dependency_urns=frozenset(request.dependencies),
                request=request,
            )
        )
        custom_id, outputs = (f"{request.name}-id", request.object) if request.custom else ("", None)
        return resource_pb2.RegisterResourceResponse(urn=urn, id=custom_id, object=outputs)

    def RegisterResourceOutputs(self, request: Any) -> Any:  # noqa: N802 (the SDK's name)
        if request.urn in self.outputs:
            raise ValueError(f"outputs registered twice for {request.urn}")
        self.outputs[request.urn] = rpc.deserialize_properties(request.outputs)
        return empty_pb2.Empty()


def build(program: Callable[[], object]) -> Graph:
    recorder = Recorder()
    exports: dict[str, Any] = {}

    def run() -> pulumi.Output[None]:
        program()
        root = settings.get_root_resource()
        assert root is not None
        return pulumi.Output.from_input(root.outputs).apply(exports.update)

    # The SDK records a call stack for each resource, which takes a quarter of the time.
    with mock.patch("pulumi.runtime.resource._get_stack_trace", source_pb2.StackTrace):
        _run(run, recorder)
    return Graph(tuple(recorder.recorded), recorder.outputs, exports)


def inputs(program: Callable[[], object]) -> list[tuple[str, str, Mapping[str, Any]]]:
    """Returns type, name and inputs of each custom resource of the program. The SDK's own way to them, which `build`
    takes, has a resource's parent and dependencies too, and takes ten times as long."""
    found: list[tuple[str, str, Mapping[str, Any]]] = []

    def register(
        resource: Any, kind: str, name: str, custom: bool, _remote: Any, _of: Any, given: Any, *_: Any
    ) -> None:
        resource.__dict__["urn"] = pulumi.Output.from_input(name)
        if custom:
            found.append((kind, name, {key: value for key, value in given.items() if value is not None}))

    sdk = "pulumi.resource.register_resource"
    with mock.patch(sdk, register), mock.patch(f"{sdk}_outputs"):
        _run(program, Recorder())
    return found


def _run(program: Callable[[], object], recorder: Recorder) -> None:
    settings.reset_options()
    pulumi.runtime.set_mocks(recorder.mocks, project=PROJECT, stack=STACK, preview=False, monitor=recorder)

    @pulumi.runtime.test
    def run() -> object:
        # `run` raises the task's exception itself.
        asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: None)
        return program()

    try:
        run()
    finally:
        settings.reset_options()


def names(resources: Iterable[Recorded]) -> set[str]:
    return {resource.name for resource in resources}
