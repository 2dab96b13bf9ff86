"""`python -m tests.benchmarks.advise`: proposed budgets against held-out weeks, as docs/gpumem.md shows them."""

from tests.support.weeks import KINDS, backtest

SEEDS = 400
DAYS = (7, 14, 28)


def main() -> None:
    print(f"| days above, of 100 ({SEEDS} seeds) | {' | '.join(f'{days} days seen' for days in DAYS)} | headroom |")
    print(f"|---|{'---|' * len(DAYS)}---|")
    promised = [100 / (days + 1) for days in DAYS]
    print(f"| promised: at most | {' | '.join(f'{share:.1f}' for share in promised)} | |")
    for kind in KINDS:
        found = [backtest(kind, seeds=SEEDS, days=days) for days in DAYS]
        rates = " | ".join(f"{each.rate * 100:.1f}" for each in found)
        print(f"| {kind} | {rates} | {found[-1].headroom:.0%} |")


if __name__ == "__main__":
    main()
