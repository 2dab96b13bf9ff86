"""The alerts. Each module of this package covers a subject and has a pure function `rules(args)`."""

import pkgutil
from importlib import import_module

from components.monitoring.alert import Alert
from components.monitoring.args import AlertsArgs


def alerts(args: AlertsArgs) -> list[Alert]:
    """Returns the alerts of every module in this package."""
    modules = [import_module(f"{__name__}.{found.name}") for found in pkgutil.iter_modules(__path__)]
    return [alert for module in modules for alert in module.rules(args)]
