"""The whole platform as one Pulumi component."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NotRequired, TypedDict, Unpack

import pulumi

from components.base.manifest import component_type
from gpu_tenancy import arguments
from gpu_tenancy.arguments import UNGIVEN, ArgumentError
from stacks import platform, provider, settings
from stacks.settings import StackSettings
from tenancy.names import PROJECT

_KIND = "Platform"
_OF_THE_LEDGER = "kubernetes:core/v1:ConfigMap"


class PlatformArgs(TypedDict):
    """The arguments of a Platform: its settings, in the program or in a file."""

    settings: NotRequired[dict[str, Any]]
    """The settings, with the keys of docs/config.schema.json without `gpu-tenancy:`. The values must not be Outputs,
    because the platform adds up the budgets before it declares a resource."""

    file: NotRequired[str]
    """The path of a YAML file with the settings, or of a stack file, relative to the project's folder. Set `file`
    instead of `settings`."""


class Platform(pulumi.ComponentResource):
    """The whole platform. The component contains the parts that the settings declare: budgets, ledger, namespaces,
    quotas, admission, queues, agents and alerts."""

    ledger: pulumi.Output[dict[str, Any]]
    """The ledger with every promise. The component Queue reads the output `ledger`. Other programs pass `ledger` to the
    policy pack (`--policy-pack-config`)."""

    residents: pulumi.Output[dict[str, Any]]
    """The fields that each resident's pods need. The output `residents` is known once the nodes advertise
    gpumem. The components Seat and SeatedDeployment read `residents`."""

    memory: pulumi.Output[dict[str, Any]]
    """The fields that the pods of each workload of a memory pool need."""

    seating_chart: pulumi.Output[str]
    """The seating chart, which draws the seats on the devices."""

    def __init__(
        self,
        name: str,
        args: PlatformArgs = UNGIVEN,
        opts: pulumi.ResourceOptions | None = None,
        **keywords: Unpack[PlatformArgs],
    ) -> None:
        given = arguments.override_with_keywords(PlatformArgs, args, keywords)
        problems = [
            *arguments.name_problems(PlatformArgs, given),
            *arguments.choice_problems(given, "settings", "file"),
            *arguments.type_problems(given, settings=Mapping, file=str),
            *_provider_problems(opts),
        ]
        try:
            parsed = None if problems else _parsed(given)
        except settings.ConfigError as error:
            problems = str(error).replace(f"{PROJECT}:", "").splitlines()
        if problems or parsed is None:
            raise ArgumentError(_KIND, name, problems)
        super().__init__(component_type(_KIND), name, {}, opts)
        outputs = platform.build(parsed, place=platform.PartsParent(parent=self, prefix=f"{name}-"))
        self.ledger = pulumi.Output.from_input(dict(outputs.ledger))
        self.residents = outputs.residents.apply(dict)
        self.memory = pulumi.Output.from_input(dict(outputs.memory))
        self.seating_chart = pulumi.Output.from_input(outputs.seating_chart)
        self.register_outputs(
            {
                "ledger": self.ledger,
                "residents": self.residents,
                "memory": self.memory,
                "seatingChart": self.seating_chart,
            }
        )

    def export(self) -> None:
        """Exports the outputs as outputs of the stack, for other stacks and for the policy pack."""
        for name in ("ledger", "residents", "memory", "seating_chart"):
            pulumi.export(name, getattr(self, name))


def _parsed(given: Mapping[str, Any]) -> StackSettings:
    if "file" in given:
        return settings.load_file(Path(given["file"]))
    values = given["settings"]
    if problems := [*_not_plain(values, ())]:
        raise settings.ConfigError("\n".join(problems))
    return settings.parse(_plain(values))


def _not_plain(value: Any, path: tuple[str, ...]) -> Iterator[str]:
    """Yields one line for each value that a YAML file cannot contain."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from _not_plain(item, (*path, str(name)))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _not_plain(item, (*path, str(index)))
    elif isinstance(value, pulumi.Output):
        yield f"{'.'.join(path)}: is an Output; write a value that is known before the program runs"
    elif value is not None and not isinstance(value, str | bool | int | float):
        yield f"{'.'.join(path)}: must be a map, list, text, number or true or false (got {type(value).__name__})"


def _plain(value: Any) -> Any:
    """Returns the value as if it came from a YAML file. A float such as 14000.0 becomes 14000, because other languages
    pass whole numbers as floats."""
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _provider_problems(opts: pulumi.ResourceOptions | None) -> list[str]:
    """Returns one line if the stack's default provider would replace a changed ConfigMap. The function does not judge
    an explicit provider."""
    parent = opts.parent if opts else None
    others = opts and (opts.provider or opts.providers or (parent and parent.get_provider(_OF_THE_LEDGER)))
    if others or provider.changes_config_maps():
        return []
    return [
        f"{provider.CHANGE_CONFIG_MAPS}: must be true under config in Pulumi.yaml or in the stack's file: else a "
        "change deletes the ledger and makes it again, and meanwhile no node advertises memory"
    ]
