"""Makes the reports on a history of use: advise, bill, and who with --since."""

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from gpumem import advise, checkout, history, host_memory, waste
from gpumem.arguments import ADVISE_DAYS, HOST_MEMORY_DAYS
from gpumem.bill import bill, bill_text
from gpumem.checkout import CheckoutError
from gpumem.focus import bill_csv
from gpumem.prometheus import access
from gpumem.report import DONE, WAITS, Report
from gpumem.who import check_pool
from tenancy.ledger import Ledger


def report(given: argparse.Namespace, ledger: Callable[[], Ledger]) -> Report:
    """Returns the report that the arguments request.

    `ledger` is a function that reads the ledger from the cluster. Raises AgentError.
    """
    reports = {"advise": _advised, "bill": _billed, "who": _wasted}
    return reports[given.verb](given, ledger)


def _wasted(given: argparse.Namespace, ledger: Callable[[], Ledger]) -> Report:
    declared = ledger()
    check_pool(declared, given.pool)
    uses = history.read(given.source, declared, days=given.since, now=time.time(), access=access(given))
    found = waste.wasted(uses, declared, namespace=given.namespace, pool=given.pool)
    return Report("waste", found, waste.waste_text)


def _advised(given: argparse.Namespace, ledger: Callable[[], Ledger]) -> Report:
    stack = checkout.read(given.stack, Path.cwd()) if given.stack else None
    if given.host_memory:
        if stack is None:
            raise CheckoutError("--host-memory needs the stack file that declares the pools: give --stack as well")
        pools = host_memory.advised(given.source, stack, days=given.days or HOST_MEMORY_DAYS, access=access(given))
        return Report("host-memory", pools, host_memory.advised_text, DONE if pools.fine else WAITS)
    declared = stack.ledger if stack else ledger()
    uses = history.read(given.source, declared, days=given.days or ADVISE_DAYS, now=time.time(), access=access(given))
    found = advise.advised(uses, declared, stack=stack, namespace=given.namespace)
    return Report("advise", found, advise.advised_text, DONE if found.fine else WAITS)


def _billed(given: argparse.Namespace, ledger: Callable[[], Ledger]) -> Report:
    stack = checkout.read(given.stack, Path.cwd()) if given.stack else None
    declared = stack.ledger if stack else ledger()
    found = bill(
        given.source,
        declared,
        month=given.month,
        currency=given.currency,
        now=datetime.now(UTC),
        former_prices=dict(given.prices),
        access=access(given),
    )
    if given.namespace:
        found = replace(found, charges=tuple(each for each in found.charges if each.tenant == given.namespace))
    return Report("bill", found, bill_text, csv=bill_csv)
