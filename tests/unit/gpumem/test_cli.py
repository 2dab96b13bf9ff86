"""What may be typed, and what is completed."""

import pytest

from gpumem import cli, completion


def candidates(*words: str) -> list[str]:
    *found, directive = completion.candidates(words, cli.parser())
    assert directive == ":4"
    return found


def test_verbs_are_completed() -> None:
    assert candidates("") == ["who", "free", "why", "completion"]
    assert candidates("w") == ["who", "why"]


def test_flags_and_their_values_are_completed() -> None:
    assert "--node" in candidates("who", "--n")
    assert candidates("who", "-o", "") == ["text", "json", "yaml"]
    assert candidates("free", "--output", "y") == ["yaml"]
    assert candidates("who", "--node", "") == []
    assert "--pool" in candidates("who", "--watch", "")
    assert candidates("completion", "") == ["bash", "zsh", "-h", "--help"]
    assert candidates("nonsense", "") == []


@pytest.mark.parametrize("verb", ["who", "free", "why"])
def test_help_has_examples(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main([verb, "--help"], {})
    assert ended.value.code == 0
    assert f"kubectl gpumem {verb}" in capsys.readouterr().out.partition("examples:")[2]


@pytest.mark.parametrize("arguments", [[], ["nonsense"], ["who", "-o", "xml"], ["free", "--interval", "0"]])
def test_a_wrong_command_is_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments, {})
    assert ended.value.code == cli.USAGE
    assert "usage" in capsys.readouterr().err


def test_the_flags_of_the_connection_are_kubectls() -> None:
    given = cli.parser().parse_args(["who", "--context", "lab", "--as-group", "a", "--as-group=b"])
    assert cli._connection(given) == ["--context=lab", "--as-group=a", "--as-group=b"]


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_a_script_for_each_shell(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["completion", shell], {}) == 0
    assert "kubectl-gpumem __complete" in capsys.readouterr().out
