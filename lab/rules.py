"""The rules of docs/spec.md, and the tests that cite them.

A test cites a rule by its id in a docstring or comment (`000-5.3`), or at the start of its name, in lower case and with
`_` for `-` and `.` (`test_003_br_05_...`). Used by tests/test_spec.py and lab/mutants.py.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from lab.repository import ROOT

SPEC = ROOT / "docs" / "spec.md"

# Anything shaped like an id, valid or not. A section alone ("000-5") and a range of documents ("000-004") are not.
MENTION = re.compile(r"(?<![\w.-])(?:0\d\d-(?:(?i:br)-\d+|[\w-]+(?:\.\d+)+)|[Dd]-\d+(?:\.\d+)+)(?![\w-]|\.\w)")
# A test whose name starts like this claims to test a rule.
_CLAIMING_NAME = re.compile(r"test_(00[0-4]_|d_\d)")
_RULE = re.compile(r"- \*\*(?P<id>[^*]+)\*\* \((?P<scope>\w+): (?P<places>[\w./, ]+)\) (?P<text>\S.*)")
_BOLD_START = re.compile(r"\s*[-*+|]\s*\*\*")  # a bullet or table row that starts in bold claims to be a rule
_HEADING = re.compile(r"## (?P<seed>\d{3}|D) ")


@dataclass(frozen=True)
class Rule:
    id: str
    scope: str
    places: tuple[str, ...]  # the files that implement it
    text: str
    seed: str  # the document under whose heading the rule is listed


@dataclass(frozen=True)
class Citation:
    rule_id: str  # as cited; there may be no such rule
    test: str | None  # the name of the test function, or None outside of one


def parse(spec: str) -> list[Rule]:
    """The rules in order; raises AssertionError for a bullet that starts in bold and is not a rule."""
    rules: list[Rule] = []
    seed = ""
    for bullet in re.sub(r"\n  (?=\S)", " ", spec).splitlines():
        if heading := _HEADING.match(bullet):
            seed = heading["seed"]
        if _BOLD_START.match(bullet):
            rule = _RULE.fullmatch(bullet)
            assert rule, f"not of the form '- **id** (scope: files) text': {bullet}"
            rules.append(Rule(rule["id"], rule["scope"], tuple(rule["places"].split(", ")), rule["text"], seed))
    return rules


def name_form(rule_id: str) -> str:
    """The id as written in a function name."""
    return re.sub(r"[-.]", "_", rule_id).lower()


def citations(source: str, rules: list[Rule]) -> Iterator[Citation]:
    """Every citation in the source of a test file, including ids of no rule."""
    if not MENTION.search(source) and not _CLAIMING_NAME.search(source):
        return
    tree = ast.parse(source)
    lines = source.splitlines()
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    tests = [function for function in functions if function.name.startswith("test_")]
    owner = {line: test.name for test in tests for line in _lines_of(test, lines)}
    for number, line in enumerate(lines, 1):
        for rule_id in MENTION.findall(line):
            yield Citation(rule_id, owner.get(number))
    ids = {name_form(rule.id): rule.id for rule in rules}
    for test in tests:
        if _CLAIMING_NAME.match(test.name):
            yield Citation(_cited_by_name(test.name, ids) or test.name, test.name)


def _lines_of(test: ast.FunctionDef | ast.AsyncFunctionDef, lines: list[str]) -> range:
    """The lines of a test, with its decorators and the comment directly above it."""
    first = min([test.lineno, *(decorator.lineno for decorator in test.decorator_list)])
    while first > 1 and lines[first - 2].startswith("#"):
        first -= 1
    return range(first, (test.end_lineno or first) + 1)


def _cited_by_name(name: str, ids: dict[str, str]) -> str | None:
    """The rule at the start of a test name; the longest id wins, so `000_5_10` is not `000_5`."""
    words = name.removeprefix("test_").split("_")
    heads = ("_".join(words[:length]) for length in range(len(words), 0, -1))
    return next((ids[head] for head in heads if head in ids), None)
