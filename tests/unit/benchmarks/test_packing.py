"""The packing benchmark on a small generated trace, so that it and what it says stay true."""

from pathlib import Path

from tenancy.devices.allocate import Ask
from tests.benchmarks.packing import ARRIVALS, Host, Job, Trace, allocated, arrivals, generated, read, rules

TRACE = generated(seed=1)


def test_the_trace_is_read_as_it_is_published(tmp_path: Path) -> None:
    (tmp_path / "openb_node_list_gpu_node.csv").write_text(
        "sn,cpu_milli,memory_mib,gpu,model\nopenb-node-0000,64000,262144,2,P100\n"
    )
    (tmp_path / "openb_pod_list_default.csv").write_text(
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
        "openb-pod-0001,6000,12288,1,460,,LS,Running,427061,12902960,427061\n"
        "openb-pod-0002,4000,8192,0,0,,LS,Running,1,2,1\n"
    )
    assert read(tmp_path) == Trace(
        (Host(64000, 262144, (1000, 1000), 64000),), (Job(6000, 12288, Ask(460, 1, 6000)), Job(4000, 8192, None))
    )


def test_arrivals_ask_for_all_of_the_trace_and_nearly_130_percent_of_the_gpus() -> None:
    jobs = arrivals(TRACE, seed=1)
    asked = sum(job.gpu_mib for job in jobs)
    assert len(jobs) > len(TRACE.jobs)
    assert asked <= ARRIVALS * TRACE.gpu_mib < asked + 8000


def test_a_pod_goes_only_where_all_four_dimensions_suffice() -> None:
    trace = Trace((Host(1000, 100, (500, 400), 1000),), ())
    fitting = Job(1000, 100, Ask(400, 2))
    for job in (Job(1001, 100, None), Job(1000, 101, None), Job(0, 0, Ask(501)), Job(0, 0, Ask(401, 2))):
        for rule in rules(TRACE).values():
            assert allocated(trace, [job, fitting], rule, seed=0) == 100 * 800 / 900


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
