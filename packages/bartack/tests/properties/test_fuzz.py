"""A short run of `lab/fuzz.py`, with the same inputs every time (D-3.11)."""

import pytest

from lab.fuzz import TARGETS, Target, fuzz, main
from lab.fuzz_inputs import Corpus

SEED = 1
INPUTS = 12  # inputs per target; they take a few seconds in all


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return Corpus()


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_damaged_inputs_break_no_law(target: Target, corpus: Corpus) -> None:
    crashes = [crash for number in range(INPUTS) if (crash := fuzz(target, corpus, SEED, number)) is not None]
    assert crashes == []


def test_a_run_prints_its_seed_and_counts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["0", "--seed", "7", "--target", "decode-ollama"]) == 0
    printed = capsys.readouterr().out
    assert "seed 7: 1 targets" in printed
    assert "0 places that raised" in printed


def test_a_law_that_is_broken_is_reported_with_its_input(corpus: Corpus) -> None:
    def fail(value: object) -> None:
        raise KeyError("a")

    crash = fuzz(Target("broken", lambda random, corpus: {"a": 1}, fail), corpus, SEED, 0)
    assert crash is not None
    assert (crash.target, crash.input, crash.error) == ("broken", "{'a': 1}", "KeyError: 'a'")
