"""Makes random stack files. Many of them contain typical mistakes."""

from hypothesis import strategies as st

PREFIXES = ("", "gpu_tenancy:", "GPU-TENANCY:", "gpu-tenancy:config:", "kubernetes:", "other:", ":")
NAMES = ("null", "~", "1", "01", "true", "True", "yes", "2.50", "2026-01-01", "'null'", "'05'", "x y", "<<", "*a", "?")
SCALARS = (
    *("05000", "010", "08", "0o17", "0x10", "0b11", "1_000", "5e3", "3000.0", "+3000", "-0", "1e400", ".5", "0.1"),
    *("2026-01-01", "2026-1-1", "12:30", "1:30:00", "yes", "on", "True", "FALSE", "null", "~", "", ".inf", ".NaN"),
    *("'5000'", '"5k"', "3Gi", "{secure: v1:x}", "{secure: 5}", "{}", "[]", "[1, 2]", "&a 1", "*a", "!!str 5", "!x 5"),
    *("{<<: {b: 1}, c: 2}", "99999999999999999999", "9007199254740993", '"\\ud800"', "{a: 1, a: 2}", "|-\n      text"),
)
_LETTERS = "0123456789_-+.eExXoObBnul~:TZ"


_ODD = st.sampled_from(SCALARS) | st.text(_LETTERS, max_size=6)
_ODD_NAMES = st.sampled_from(NAMES) | st.text(_LETTERS, min_size=1, max_size=4)


@st.composite
def stack_texts(draw: st.DrawFn) -> str:
    def mostly(right: str, wrong: st.SearchStrategy[str]) -> str:
        return right if draw(st.sampled_from(range(12))) else draw(wrong)

    def value(right: str) -> str:
        return mostly(right, _ODD)

    def key(part: str) -> str:
        return mostly("gpu-tenancy:", st.sampled_from(PREFIXES)) + part

    pool = f"{{node_selector: {{gpu: {value('t4')}}}, nodes: {value('1')}, memory_mib: {value('15360')}}}"
    seat = f"{{tenant: {value('a')}, pool: t4, gpumem_mib: {value('3000')}, replicas: {value('1')}}}"
    parts = [
        f"{key('cluster')}: {{resource_domain: {value('example.com')}, agent_image: python:3.13.9}}",
        f"{key('pools')}: {{t4: {pool}}}",
        f"{key('tenants')}: {{a: {value('{}')}, {mostly('b', _ODD_NAMES)}: {{}}}}",
        f"{key('residents')}: {{{mostly('seat', _ODD_NAMES)}: {seat}}}",
        f"{key('reconcile')}: {value('{interval_seconds: 10}')}",
        f"{mostly('kubernetes:context', _ODD_NAMES)}: {value('lab')}",
    ]
    parts += [] if draw(st.sampled_from(range(12))) else [draw(st.sampled_from(parts))]
    beside = mostly("encryptionsalt: x", st.sampled_from(["residents: {}", "Config: {}", "config: {}"]))
    return "\n".join(["config:", *(f"  {part}" for part in parts), beside]) + "\n"
