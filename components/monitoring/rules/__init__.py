"""The alerts: each module here is a subject and has a pure `rules(args)`."""

import pkgutil
from importlib import import_module

from components.monitoring.alert import Alert
from components.monitoring.args import AlertsArgs


def alerts(args: AlertsArgs) -> list[Alert]:
    """The alerts of every module in this package."""
    modules = [import_module(f"{__name__}.{found.name}") for found in pkgutil.iter_modules(__path__)]
    return [alert for module in modules for alert in module.rules(args)]
