"""One row per format holds everything about it; nothing else in the source tree is keyed by format names."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import bartack
from bartack.formats import FORMATS, format_named
from bartack.formats.format import ALL_FEATURES, HistoryRules
from bartack.formats.framing import FRAMINGS

SOURCE = Path(bartack.__file__).parent


def home_of(name: str) -> str:
    """The module or folder of a format."""
    return name.replace("-", "_")


def test_every_folder_and_module_with_a_row_is_a_registered_format() -> None:
    rows = re.compile(r"^FORMAT = Format\(", re.MULTILINE)
    sources = [*(SOURCE / "formats").glob("*/__init__.py"), *(SOURCE / "formats").glob("*.py")]
    homes = {path for path in sources if rows.search(path.read_text("utf-8"))}
    names = {path.parent.name if path.name == "__init__.py" else path.stem for path in homes}
    assert names == {home_of(name) for name in FORMATS}
    folders = {path.parent.name for path in (SOURCE / "formats").glob("*/__init__.py")} - {"framing"}
    assert folders <= names


@pytest.mark.parametrize("name", FORMATS)
def test_the_row_of_a_format_is_complete(name: str) -> None:
    row = format_named(name)
    home = f"bartack.formats.{home_of(name)}"
    assert row.name == row.decoder.format == name
    assert row.framing in FRAMINGS
    assert (row.decoder.__module__, row.encode.__module__) in ((f"{home}.decode", f"{home}.encode"), (home, home))
    assert type(row.rules) is HistoryRules
    assert type(row.history_rules("some vendor", "some-model")) is HistoryRules
    assert row.features <= ALL_FEATURES
    assert row.event_types or row.event_keys


def test_no_two_formats_are_recognised_by_the_same_events() -> None:
    rows = [format_named(name) for name in FORMATS]
    marks = [mark for row in rows for mark in (*row.event_types, *row.event_keys)]
    assert len(marks) == len(set(marks))


# Names of other things that are spelled the same: the APIs in transcripts of pi, and vendors.
OTHER_NAMES = {"interop/pi/read.py", "telemetry/conventions.py"}


def keyed_by_format(tree: ast.AST) -> Iterator[int]:
    """The lines of tables with several format names as keys, and of comparisons with a format name."""

    def names(nodes: list[ast.expr | None]) -> int:
        return sum(isinstance(node, ast.Constant) and node.value in FORMATS for node in nodes)

    for node in ast.walk(tree):
        match node:
            case ast.Dict(keys=keys) if names(keys) > 1:
                yield node.lineno
            case ast.Compare(left=first, comparators=comparators) if names([first, *comparators]):
                yield node.lineno
            case ast.MatchValue(value=value) if names([value]):
                yield value.lineno


def test_nothing_else_is_keyed_by_format_names() -> None:
    places = [
        f"{path.relative_to(SOURCE)}:{line}"
        for path in sorted(SOURCE.rglob("*.py"))
        if path.relative_to(SOURCE).as_posix() not in OTHER_NAMES
        for line in keyed_by_format(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert places == []


@pytest.mark.parametrize(
    "code",
    [
        '{"openai-chat": 1, "cohere-v2": 2}',
        'format == "openai-chat"',
        'match format:\n    case "openai-chat": pass',
    ],
)
def test_tables_and_branches_by_format_are_found(code: str) -> None:
    assert list(keyed_by_format(ast.parse(code)))
