"""docs/spec.md and the tests agree: every rule of an implemented scope is cited, and every cited rule exists."""

import re
from pathlib import Path

import pytest

from lab.mutants import MENTION, SPEC, Citation, Rule, citations, name_form, parse
from lab.repository import PACKAGES, ROOT, files_of_tests

IMPLEMENTED = {"core", "wire", "store", "agent"}  # scopes whose rules must all be cited
SCOPES = {"core", "wire", "store", "agent", "product"}

pytestmark = pytest.mark.xdist_group("spec")  # all test files are read once, by one worker

WELL_FORMED = re.compile(r"00[013]-\d+(\.\d+)+|003-BR-\d{2}|00[24]-[a-z]+(-[a-z]+)*\.\d+|D-\d+(\.\d+)+")


@pytest.fixture(scope="module")
def rules() -> list[Rule]:
    return parse(SPEC.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def cited(rules: list[Rule]) -> dict[str, str]:
    """Each cited id, with one file that cites it."""
    return {
        citation.rule_id: str(path.relative_to(ROOT))
        for path in files_of_tests()
        if path != Path(__file__)
        for citation in citations(path.read_text(encoding="utf-8"), rules)
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


def test_every_rule_names_the_files_that_implement_it(rules: list[Rule]) -> None:
    """Modules of a package, or other files of the repository."""
    folders = (*PACKAGES.values(), ROOT)
    missing = [
        f"{rule.id}: {place}"
        for rule in rules
        for place in rule.places
        if not any((folder / place).is_file() for folder in folders)
    ]
    assert not missing, "named in docs/spec.md, but not there:\n" + "\n".join(missing)


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
    rules = [Rule(rule_id, "core", (), "", "") for rule_id in ("000-5.1", "000-5.10", "003-BR-05", "D-3.4")]
    assert list(citations(f"def {name}(): ...", rules)) == [Citation(expected, name)]


def test_citation_belongs_to_the_test_around_it() -> None:
    source = """
# 000-1.1
X = 1

# 000-1.2
@pytest.mark.parametrize("rule", ["000-1.3"])
def test_it(rule):
    "000-1.4"
"""
    owners = {citation.rule_id: citation.test for citation in citations(source, [])}
    assert owners == {"000-1.1": None, "000-1.2": "test_it", "000-1.3": "test_it", "000-1.4": "test_it"}


def test_name_without_a_rule_at_its_start_cites_nothing() -> None:
    assert list(citations("def test_dangling_calls_are_closed(): ...", [])) == []


def test_bold_bullet_that_is_not_a_rule_is_rejected() -> None:
    with pytest.raises(AssertionError, match="not of the form"):
        parse("## 000 x\n- **000-5.1** without a scope\n")
