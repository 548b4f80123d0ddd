"""docs/spec.md and the tests agree: every rule of an implemented scope is cited, and every cited rule exists.

A test cites a rule by its id in a docstring or comment (`000-5.3`), or at the start of its name, in lower case and with
`_` for `-` and `.` (`test_003_br_05_...`).
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

IMPLEMENTED = {"core", "wire", "store", "agent"}  # scopes whose rules must all be cited

SCOPES = {"core", "wire", "store", "agent", "product"}
TESTS = Path(__file__).parent
SPEC = TESTS.parent / "docs" / "spec.md"

pytestmark = pytest.mark.xdist_group("spec")  # all test files are read once, by one worker

WELL_FORMED = re.compile(r"00[013]-\d+(\.\d+)+|003-BR-\d{2}|00[24]-[a-z]+(-[a-z]+)*\.\d+|D-\d+(\.\d+)+")
# Anything shaped like an id, valid or not. A section alone ("000-5") and a range of documents ("000-004") are not.
MENTION = re.compile(r"(?<![\w.-])(?:0\d\d-(?:(?i:br)-\d+|[\w-]+(?:\.\d+)+)|[Dd]-\d+(?:\.\d+)+)(?![\w-]|\.\w)")
# A test whose name starts like this claims to test a rule.
CLAIMING_NAME = re.compile(r"test_(00[0-4]_|d_\d)")
RULE = re.compile(r"- \*\*(?P<id>[^*]+)\*\* \((?P<scope>\w+)\) (?P<text>\S.*)")
BOLD_HEAD = re.compile(r"\s*[-*+|]\s*\*\*")  # a bullet or table row that starts in bold claims to be a rule
HEADING = re.compile(r"## (?P<seed>\d{3}|D) ")


@dataclass(frozen=True)
class Rule:
    id: str
    scope: str
    text: str
    seed: str  # the document under whose heading the rule is listed


def parse(spec: str) -> list[Rule]:
    """The rules in order; raises AssertionError for a bullet that starts in bold and is not a rule."""
    rules: list[Rule] = []
    seed = ""
    for bullet in re.sub(r"\n  (?=\S)", " ", spec).splitlines():
        if heading := HEADING.match(bullet):
            seed = heading["seed"]
        if BOLD_HEAD.match(bullet):
            rule = RULE.fullmatch(bullet)
            assert rule, f"not of the form '- **id** (scope) text': {bullet}"
            rules.append(Rule(rule["id"], rule["scope"], rule["text"], seed))
    return rules


def name_form(rule_id: str) -> str:
    """The id as written in a function name."""
    return re.sub(r"[-.]", "_", rule_id).lower()


def cited_by_name(name: str, ids: dict[str, str]) -> str | None:
    """The rule at the start of a test name; the longest id wins, so `000_5_10` is not `000_5`."""
    words = name.removeprefix("test_").split("_")
    heads = ("_".join(words[:length]) for length in range(len(words), 0, -1))
    return next((ids[head] for head in heads if head in ids), None)


def citations(source: str, rules: list[Rule]) -> Iterator[str]:
    """Every id that the source of a test file cites, including ids of no rule."""
    yield from MENTION.findall(source)
    ids = {name_form(rule.id): rule.id for rule in rules}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and CLAIMING_NAME.match(node.name):
            yield cited_by_name(node.name, ids) or node.name


@pytest.fixture(scope="module")
def rules() -> list[Rule]:
    return parse(SPEC.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def cited(rules: list[Rule]) -> dict[str, str]:
    """Each cited id, with one file that cites it."""
    files = (path for path in sorted(TESTS.rglob("*.py")) if path != Path(__file__))
    return {
        rule_id: str(path.relative_to(TESTS))
        for path in files
        for rule_id in citations(path.read_text(encoding="utf-8"), rules)
    }


def test_every_id_is_well_formed_and_listed_under_its_document(rules: list[Rule]) -> None:
    assert rules
    wrong = [rule.id for rule in rules if not WELL_FORMED.fullmatch(rule.id) or not rule.id.startswith(f"{rule.seed}-")]
    assert not wrong


def test_every_id_is_unique(rules: list[Rule]) -> None:
    ids = [rule.id for rule in rules]
    assert sorted({rule_id for rule_id in ids if ids.count(rule_id) > 1}) == []


def test_no_two_ids_are_equal_in_a_test_name(rules: list[Rule]) -> None:
    assert len({name_form(rule.id) for rule in rules}) == len(rules)


def test_every_rule_has_a_known_scope(rules: list[Rule]) -> None:
    assert SCOPES >= IMPLEMENTED
    assert [rule.id for rule in rules if rule.scope not in SCOPES] == []


def test_rules_refer_only_to_existing_rules(rules: list[Rule]) -> None:
    ids = {rule.id for rule in rules}
    assert sorted(set(MENTION.findall(SPEC.read_text(encoding="utf-8"))) - ids) == []


def test_every_rule_of_an_implemented_scope_is_cited_by_a_test(rules: list[Rule], cited: dict[str, str]) -> None:
    missing = [f"{rule.id} {rule.text}" for rule in rules if rule.scope in IMPLEMENTED and rule.id not in cited]
    assert not missing, f"{len(missing)} rules are not cited by any test:\n" + "\n".join(missing)


def test_every_cited_rule_exists(rules: list[Rule], cited: dict[str, str]) -> None:
    ids = {rule.id for rule in rules}
    unknown = [f"{rule_id} in {file}" for rule_id, file in cited.items() if rule_id not in ids]
    assert not unknown, "cited but not in docs/spec.md:\n" + "\n".join(unknown)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('"""000-5.3: seq rises strictly."""', ["000-5.3"]),
        ("# see 000-5.10.", ["000-5.10"]),
        ("# 003-BR-05, D-3.4.1 (002-non-goals.2)", ["003-BR-05", "D-3.4.1", "002-non-goals.2"]),
        ("# 003-br-5 and 003-BR-051 and 007-1.1", ["003-br-5", "003-BR-051", "007-1.1"]),
        ("# 000-004, 000-5, x000-5.1, 000-5.1x, 00000000-0000-4000-8000-000000000001, 1000-5.1", []),
    ],
)
def test_mention_ends_where_the_id_ends(text: str, expected: list[str]) -> None:
    assert MENTION.findall(text) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("test_000_5_1_start_is_first", "000-5.1"),
        ("test_000_5_10", "000-5.10"),
        ("test_003_br_05_order_of_states", "003-BR-05"),
        ("test_000_5_11", "test_000_5_11"),
        ("test_d_3_4_usage_is_cumulative", "D-3.4"),
    ],
)
def test_name_cites_the_longest_id_at_its_start(name: str, expected: str) -> None:
    rules = [Rule(rule_id, "core", "", "") for rule_id in ("000-5.1", "000-5.10", "003-BR-05", "D-3.4")]
    assert list(citations(f"def {name}(): ...", rules)) == [expected]


def test_name_without_a_rule_at_its_start_cites_nothing() -> None:
    assert list(citations("def test_dangling_calls_are_closed(): ...", [])) == []


def test_bold_bullet_that_is_not_a_rule_is_rejected() -> None:
    with pytest.raises(AssertionError, match="not of the form"):
        parse("## 000 x\n- **000-5.1** without a scope\n")
