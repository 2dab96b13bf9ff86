"""What several programs share is compiled once: their go.mod files must agree on its version."""

from pathlib import Path

import pytest

from toolchain import align


@pytest.mark.parametrize("folder", align.BESIDE_THE_CLI)
def test_what_a_preview_program_shares_with_the_pulumi_cli_is_not_older_than_the_clis(folder: str) -> None:
    assert align.to_raise(align.TOOLCHAIN / folder) == {}, "run python3 toolchain/align.py"


def test_an_older_shared_module_is_raised_and_a_pin_of_pulumis_own_is_not(tmp_path: Path) -> None:
    cli = align.required(align.TOOLCHAIN / "pulumi" / "go.mod")
    (tmp_path / "go.mod").write_text(
        "module x\n\nrequire github.com/pulumi/pulumi/sdk/v3 v3.1.0\n\n"
        "require (\n\tgoogle.golang.org/grpc v1.9.0 // indirect\n\texample.com/unshared v1.0.0\n)\n"
    )
    assert align.to_raise(tmp_path) == {"google.golang.org/grpc": cli["google.golang.org/grpc"]}


def test_versions_are_ordered_as_go_orders_them() -> None:
    ordered = ["v0.0.0-20240101000000-abcdefabcdef", "v0.9.0", "v0.10.0-rc.2", "v0.10.0-rc.10", "v0.10.0", "v2.0.0"]
    by_text = sorted(ordered)
    assert by_text != ordered
    assert sorted(by_text, key=align.order) == ordered
    assert align.order("v2.0.0+incompatible") == align.order("v2.0.0")
