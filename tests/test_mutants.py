"""The mutants of lab/mutants.toml still apply, and every rule has one. `make lab NAME=mutants` runs them."""

import ast

import pytest

from lab.mutants import SPEC, Mutant, citing_tests, exemptions, mutants, parse, score
from lab.repository import ROOT, section


@pytest.mark.parametrize("mutant", mutants(), ids=lambda mutant: mutant.rules)
def test_mutant_applies_and_is_valid_python(mutant: Mutant) -> None:
    ast.parse(mutant.applied(ROOT))


@pytest.mark.xdist_group("spec")
def test_every_mutated_rule_exists_and_is_cited() -> None:
    ids = {rule.id for rule in parse(SPEC.read_text(encoding="utf-8"))}
    mutated = {rule for mutant in mutants() for rule in mutant.rules.split()}
    assert mutated - ids == set()
    assert mutated - citing_tests().keys() == set()


def test_every_rule_has_a_mutant_or_is_exempt_for_a_reason() -> None:
    ids = [rule.id for rule in parse(SPEC.read_text(encoding="utf-8"))]
    mutated = {rule for mutant in mutants() for rule in mutant.rules.split()}
    exempt = exemptions()
    assert [rule for rule in ids if rule not in mutated and rule not in exempt] == []
    assert exempt.keys() <= set(ids) - mutated
    assert all(len(reason) > 20 for reason in exempt.values())
    assert len(exempt) <= 5, "a rule that can be broken needs a mutant"


def test_score_counts_the_cases_of_each_document() -> None:
    mutant = Mutant("000-2.1 D-1.1", "models/model.py", "", "")
    cases = [(mutant, rule) for rule in mutant.rules.split()]
    lines = [line.split() for line in score(cases, [cases[1]]).splitlines()[2:]]
    counts = {line[1]: (line[7], line[9]) for line in lines}
    assert [counts[name] for name in ("`000`", "`001`", "`D`", "all")] == [
        ("1", "1"),
        ("0", "0"),
        ("1", "0"),
        ("2", "1"),
    ]


def test_score_is_in_the_rules_page() -> None:
    assert "| all |" in section(SPEC.read_text(encoding="utf-8"), "mutants")
