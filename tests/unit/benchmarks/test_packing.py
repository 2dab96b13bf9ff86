"""Rules of placement on a small generated trace."""

from tests.benchmarks.packing import allocated, arrivals, generated, rules

TRACE = generated(seed=1)


def test_ours_hands_out_more_than_chance_and_the_peer_and_no_less_than_best_fit() -> None:
    means = {
        name: sum(allocated(TRACE, arrivals(TRACE, seed), rule, seed) for seed in range(5)) / 5
        for name, rule in rules(TRACE).items()
    }
    ours = means.pop("ours: fragmentation")
    assert ours > means["random node and device"] + 2
    assert ours > means["the peer: random node, best fit on it"] + 0.5
    assert ours >= max(means.values())
    assert ours <= 100
