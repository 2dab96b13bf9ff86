"""Counts unclear sentences in docs, docstrings and comments, by package. `python -m tests.words [FILE ...]` lists them.

tests/unit/contract/test_words.py compares the numbers with limits. `--lower` lowers each limit to the current number.
"""

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.imports import PACKAGES
from tests.support.paths import ROOT

LIMITS = ROOT / "tests" / "unit" / "contract" / "words.json"
MOST_WORDS = 25
# Files that are not counted. A skipped file must not be changed, or is generated from texts that are counted elsewhere.
_SKIPPED = (
    "CHANGELOG.md",
    "docs/reference/settings.md",
    "docs/reference/policy-rules.md",
    "tests/golden/",
    "tests/words.py",
)
_FOLDERS = (*PACKAGES, "docs", "examples", "tests", "toolchain")
_PATTERNS: Mapping[str, re.Pattern[str]] = {
    f"over {MOST_WORDS} words": re.compile(rf"^\W*(?:\S+\s+){{{MOST_WORDS}}}\S"),
    "begins with a question word and asks nothing": re.compile(r"^\W*(?:What|Whether|Who|Whose|Whom)\b[^?]*$"),
    "who is for people": re.compile(r"\bwho(?:m|se|ever)?\b"),
    "software that speaks or hears": re.compile(r"\b(?:says?|said|tells?|told|hears?|heard)\b"),
    "a double negative": re.compile(
        r"\b(?:not?|never|nothing|nobody|neither)\b(?:(?![.;:]).){0,60}?\b(?:without|unless|no|never|nor|lacks?)\b",
        re.I,
    ),
    "an old word": re.compile(
        r"\b(?:anew|hence|thereby|thereof|whence|lest|ere|betimes|besides|for ever|all the same)\b"
    ),
}
_FENCE = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
_DOCSTRING = re.compile(r'^ *"""(?=[^\s).,])(.*?)"""', re.MULTILINE | re.DOTALL)
_COMMENTS = re.compile(r"(?:^[ \t]*# [^\n]*\n)+|(?<=\S)  # [^\n]*$", re.MULTILINE)


@dataclass(frozen=True)
class Unclear:
    file: str
    reason: str
    sentence: str

    @property
    def package(self) -> str:
        return self.file.split("/")[0] if "/" in self.file else "the root"


def files() -> list[Path]:
    found = [*ROOT.glob("*.md"), *(path for name in _FOLDERS for path in (ROOT / name).rglob("*.[mp][dy]"))]
    return sorted(path for path in found if not _name(path).startswith(_SKIPPED))


def unclear(path: Path) -> Iterator[Unclear]:
    """A sentence is reported once, even if it matches several patterns."""
    text = path.read_text()
    for paragraph in _of_markdown(text) if path.suffix == ".md" else _of_python(text):
        for sentence in re.split(r"(?<=[.!?])\s+(?=\W*[A-Z])", paragraph):
            for reason, pattern in _PATTERNS.items():
                if pattern.search(sentence):
                    yield Unclear(_name(path), reason, sentence)
                    break


def counted(found: Sequence[Unclear]) -> dict[str, int]:
    return dict(sorted(Counter(each.package for each in found).items()))


def _name(path: Path) -> str:
    return str(path.resolve().relative_to(ROOT))


def _of_markdown(text: str) -> Iterator[str]:
    """Yields the paragraphs, list items and table cells of a Markdown text, without code and URLs."""
    for line in _FENCE.sub("", text).splitlines():
        for part in line.split("|") if line.startswith("|") else [line]:
            yield _plain(part)


def _of_python(text: str) -> Iterator[str]:
    for docstring in _DOCSTRING.findall(text):
        yield from (_plain(paragraph) for paragraph in docstring.split("\n\n"))
    yield from (_plain(re.sub(r"^\s*# ?", "", block, flags=re.MULTILINE)) for block in _COMMENTS.findall(text))


def _plain(text: str) -> str:
    text = re.sub(r"`[^`]*`", "X", text)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return " ".join(re.sub(r"https?://\S+", "X", text).strip(" #-*>").split())


def main(arguments: Sequence[str]) -> int:
    """Lists the unclear sentences of the given files, or of all files. Returns the exit code 0."""
    if arguments == ["--lower"]:
        limits, now = json.loads(LIMITS.read_text()), counted([each for path in files() for each in unclear(path)])
        lowered = {package: min(limit, now.get(package, 0)) for package, limit in limits.items()}
        LIMITS.write_text(json.dumps(lowered, indent=2) + "\n")
        return 0
    for path in map(Path, arguments) if arguments else files():
        for each in unclear(path):
            print(f"{each.file}: {each.reason}: {each.sentence}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
