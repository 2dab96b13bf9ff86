"""Makes random ledgers for property tests."""

from hypothesis import strategies as st

from tenancy.choices import Sharing
from tenancy.ledger import Ledger, OnDemand, Pool, QueueQuota, Seat, Unbudgeted
from tenancy.names import GPU

DOMAIN = "example.com"
GPUMEM = f"{DOMAIN}/gpumem"
# Names of every length that the seating chart must print.
NAMES = st.sampled_from(["abcdefghijklmnopqrstuv"[:length] for length in range(1, 23)])
TENANTS = st.sampled_from(["team-a", "team-b", "team-c"])


@st.composite
def pools(draw: st.DrawFn, name: str) -> Pool:
    sharing = draw(st.sampled_from(Sharing))
    nodes, devices = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    selector = {"pool": name}
    if sharing is Sharing.WHOLE:
        return Pool(name=name, node_selector=selector, nodes=nodes, device_count=devices, sharing=sharing)
    memory = draw(st.integers(100, 100_000))
    return Pool(
        name=name,
        node_selector=selector,
        nodes=nodes,
        device_count=devices,
        memory_mib=memory,
        reserve_mib=draw(st.integers(0, memory - 1)),
        floor_mib=draw(st.integers(0, memory - 1)),
        driver_reserved_mib=draw(st.integers(0, 1000)),
    )


@st.composite
def seats(draw: st.DrawFn, name: str, shared: list[Pool]) -> Seat:
    pool = draw(st.sampled_from(shared))
    return Seat(
        name=name,
        tenant=draw(TENANTS),
        pool=pool.name,
        gpumem_mib=draw(st.integers(1, pool.memory_mib * 2)),
        replicas=draw(st.integers(1, 4)),
    )


@st.composite
def quotas(draw: st.DrawFn, name: str, among: list[Pool]) -> QueueQuota:
    pool = draw(st.sampled_from(among))
    resource = GPU if pool.sharing is Sharing.WHOLE else GPUMEM
    return QueueQuota(
        queue=name,
        flavor="any",
        pool=pool.name,
        resource=resource,
        nominal=draw(st.integers(0, 2 * pool.advertised_mib + 4)),
    )


@st.composite
def ledgers(draw: st.DrawFn) -> Ledger:
    every = [draw(pools(name)) for name in draw(st.lists(NAMES, min_size=1, max_size=3, unique=True))]
    shared = [pool for pool in every if pool.sharing is Sharing.MEMORY]
    sitting = draw(st.lists(NAMES, max_size=8, unique=True)) if shared else []
    return Ledger(
        domain=DOMAIN,
        pools=tuple(every),
        seats=tuple(draw(seats(name, shared)) for name in sitting),
        on_demand=tuple(
            OnDemand(name=name, tenant="team-a", pool=every[0].name, need_mib=draw(st.integers(1, 4096)))
            for name in draw(st.lists(NAMES, max_size=2, unique=True))
        ),
        unbudgeted=tuple(
            Unbudgeted(name=name, tenant="team-a", pool=every[0].name, measured_mib=draw(st.integers(1, 4096)))
            for name in draw(st.lists(NAMES, max_size=2, unique=True))
        ),
        quotas=tuple(draw(quotas(name, every)) for name in draw(st.lists(NAMES, max_size=2, unique=True))),
        queue_tenants=tuple(draw(st.lists(TENANTS, max_size=2, unique=True))),
    )
