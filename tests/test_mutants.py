"""The mutants of scripts/mutants.toml still apply. `make mutants` runs them."""

import ast

import pytest

from scripts.mutants import Mutant, citing_tests, mutants
from scripts.rules import ROOT, SPEC, parse


@pytest.mark.parametrize("mutant", mutants(), ids=lambda mutant: mutant.rules)
def test_mutant_applies_and_is_valid_python(mutant: Mutant) -> None:
    ast.parse(mutant.applied(ROOT))


@pytest.mark.xdist_group("spec")
def test_every_mutated_rule_exists_and_is_cited() -> None:
    ids = {rule.id for rule in parse(SPEC.read_text(encoding="utf-8"))}
    mutated = {rule for mutant in mutants() for rule in mutant.rules.split()}
    assert mutated - ids == set()
    assert mutated - citing_tests().keys() == set()


def test_all_documents_have_mutants() -> None:
    counts = {seed: sum(mutant.rules.startswith(seed) for mutant in mutants()) for seed in ("000", "001", "002", "003")}
    assert all(count >= 8 for count in counts.values())
    assert len(mutants()) >= 60
