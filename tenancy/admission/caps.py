"""Caps: in a pool with `enforce: driver`, each container with a budget has environment variables with its cap.

NVIDIA's container toolkit reads the variables with the cap, and sets the cap before the container's process starts. On
a node without support for caps, a container with the variables for caps does not start. In a pool without `enforce:
driver`, pods must not have the variables for caps.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tenancy import names, policy_names
from tenancy.admission import cel
from tenancy.admission.device import DEBUGGING
from tenancy.admission.placement import PoolPlacement
from tenancy.admission.policy import Manifest, Scope, mutating, outside_namespaces, validating
from tenancy.caps import VARIABLES
from tenancy.ledger import Pool
from tenancy.names import Names


@dataclass(frozen=True, kw_only=True)
class CapArgs:
    """`placed` has the node labels that another policy adds to the tenants' pods. The policy that adds the node labels
    can run after the policies for caps."""

    resources: Names
    pools: Sequence[Pool]
    placed: Sequence[PoolPlacement]

    @property
    def capped(self) -> Sequence[Pool]:
        return [pool for pool in self.pools if pool.caps]

    @property
    def others(self) -> Sequence[Pool]:
        return [pool for pool in self.pools if not pool.caps]


def policies(args: CapArgs) -> list[Manifest]:
    """Returns the policies if a pool has `enforce: driver`."""
    return [_stamp(args), _as_stamped(args), _debuggers(args)] if args.capped else []


def _stamp(args: CapArgs) -> Manifest:
    conditions = {"asks-for-gpumem": cel.asks_for_gpumem(args.resources), "is-of-a-capped-pool": _goes_to_capped(args)}
    operations = [_add_missing(field, args.resources) for field in cel.POD_CONTAINERS]
    return mutating(policy_names.DEVICE_CAP_STAMP, Scope(outside_namespaces(), conditions), operations)


def _as_stamped(args: CapArgs) -> Manifest:
    """Denies a container with a budget in a pool with `enforce: driver` if its cap does not equal the budget. Denies
    the cap of a container without a budget, and every cap in a pool that lacks `enforce: driver`."""
    limit, gpumem = names.MEMORY_LIMIT, args.resources.gpumem
    message = (
        f"the variables {' and '.join(VARIABLES)} are ours: remove them; a container that asks for {gpumem} gets its "
        "own in a pool with enforce: driver, where NVIDIA's driver holds it to them"
    )
    variables = {
        "asks": cel.asks_for_gpumem(args.resources),
        "capped": _goes_to_capped(args),
        "devices": cel.devices_of(args.resources),
    }
    budget = f"string({_mib('c', args.resources)})"
    own = " && ".join(
        f"has(c.env) && c.env.exists_one(e, e.name == {cel.quoted(each)}) && "
        f"c.env.all(e, e.name != {cel.quoted(each)} || (has(e.value) && e.value == {budget}))"
        for each in VARIABLES
    )
    none = f"!has(c.env) || !c.env.exists(e, e.name in {cel.quoted_list(VARIABLES)})"
    asks = _asks("c", args.resources)
    validations = {
        f"{cel.CONTAINERS}.all(c, variables.capped && {asks} ? {own} : {none})": message,
    }
    if args.others:
        capped, others = (", ".join(sorted(pool.name for pool in pools)) for pools in (args.capped, args.others))
        validations[f"!variables.asks || variables.capped || {_goes_to(args.others, args)}"] = (
            f"this pod may be placed in pools whose driver holds it to its {gpumem} ({capped}), and in others "
            f"({others}), where it must not have {limit}: say which by the nodeSelector of one pool"
        )
    return validating(policy_names.DEVICE_CAPPED, Scope(outside_namespaces(), {}), validations, variables)


def _debuggers(args: CapArgs) -> Manifest:
    """Denies a new debug container that sees the pod's device or has a cap. The pod's budget would not limit the debug
    container.

    A debug container without a device and without a cap is allowed.
    """
    conditions = {"is-of-a-capped-pool": _goes_to_capped(args)}
    new = (
        "object.spec.?ephemeralContainers.orValue([]).filter(c, "
        "!oldObject.spec.?ephemeralContainers.orValue([]).exists(o, o.name == c.name))"
    )
    names_none = "!variables.new.exists(c, has(c.env) && c.env.exists(e, {}))"
    message = (
        "a debugger gets no device in a pool with enforce: driver, because the driver would not hold it to the pod's "
        f"{args.resources.gpumem}: remove its variables {', '.join((names.VISIBLE_DEVICES, *VARIABLES))}"
    )
    validations = {
        names_none.format(cel.names_devices("e")): message,
        names_none.format(f"e.name in {cel.quoted_list(VARIABLES)}"): message,
    }
    scope = Scope(outside_namespaces(), conditions, DEBUGGING)
    return validating(policy_names.DEVICE_CAPPED_DEBUG, scope, validations, {"new": new})


def _goes_to_capped(args: CapArgs) -> str:
    return _goes_to(args.capped, args) if args.others else "true"


def _goes_to(pools: Sequence[Pool], args: CapArgs) -> str:
    chosen = (
        " && ".join(f"{_label(key, args)} == {cel.quoted(value)}" for key, value in sorted(pool.node_selector.items()))
        for pool in pools
    )
    return f"({' || '.join(f'({each})' for each in chosen)})"


def _label(key: str, args: CapArgs) -> str:
    """Returns CEL: the value of the key in the pod's nodeSelector after all policies."""
    found = f"object.spec.?nodeSelector[?{cel.quoted(key)}].orValue('')"
    values = [(each, each.node_selector[key]) for each in args.placed if key in each.node_selector]
    given = {tenant: value for each, value in values if not each.seats for tenant in each.tenants}
    if given:
        found = f"{_literal(given)}[?request.namespace].orValue({found})"
    named: dict[str, dict[str, str]] = {}
    for each, value in values:
        for tenant, seats in each.seats.items():
            named.setdefault(tenant, {}).update(dict.fromkeys(seats, value))
    if named:
        listed = ", ".join(f"{cel.quoted(tenant)}: {_literal(own)}" for tenant, own in sorted(named.items()))
        seat = cel.seat_label(args.resources)
        found = f"{{{listed}}}[?request.namespace].orValue({{}})[?{seat}].orValue({found})"
    return found


def _literal(values: Mapping[str, str]) -> str:
    return f"{{{', '.join(f'{cel.quoted(key)}: {cel.quoted(value)}' for key, value in sorted(values.items()))}}}"


def _asks(container: str, resources: Names) -> str:
    limits = f"{container}.resources.limits"
    key = cel.quoted(resources.gpumem)
    return f"has({container}.resources) && has({limits}) && {key} in {limits} && {limits}[{key}] != '0'"


def _mib(container: str, resources: Names, devices: str = "variables.devices") -> str:
    """Returns CEL: the container's gpumem on each of the pod's devices. Another policy denies a request that does not
    divide evenly by the number of devices."""
    return f"quantity({container}.resources.limits[{cel.quoted(resources.gpumem)}]).asInteger() / {devices}"


def _add_missing(field: str, resources: Names) -> str:
    containers, path = f"object.spec.{field}", cel.path_of_container(field)
    lacks = f"({_asks('c', resources)}) && !(has(c.env) && c.env.exists(e, e.name in {cel.quoted_list(VARIABLES)}))"
    value = f"string({_mib('c', resources, cel.devices_of(resources))})"
    patches = [
        f"{containers}.filter(c, {lacks} && !has(c.env)).map(c, "
        f"JSONPatch{{op: 'add', path: {path} + '/env', value: []}})",
        *(
            f"{containers}.filter(c, {lacks}).map(c, JSONPatch{{op: 'add', path: {path} + '/env/-', "
            f"value: {{'name': {cel.quoted(variable)}, 'value': {value}}}}})"
            for variable in VARIABLES
        ),
    ]
    return f"(has({containers}) ? {' + '.join(patches)} : [])"
