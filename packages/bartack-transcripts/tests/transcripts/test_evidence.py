"""The exports are those that the real programs continued, and these sent the whole conversation."""

import json

import pytest

from tests.transcripts.evidence import RECORDED, WORDS, digest, export, own_words

RECORDS = json.loads(RECORDED.read_text())


@pytest.mark.parametrize("target", RECORDS)
def test_an_export_is_the_one_that_the_program_continued(target: str) -> None:
    assert digest(export(target)) == RECORDS[target]["export"], (
        "changed: prove it again with make lab NAME=interop, and record it with ARGUMENTS=--record"
    )


@pytest.mark.parametrize("target", RECORDS)
def test_a_program_sent_every_text_call_and_result_in_order(target: str) -> None:
    request = RECORDS[target]["request"]
    request_text, place = json.dumps(request, ensure_ascii=False), 0
    for word in WORDS:
        place = request_text.index(word, place)
    assert own_words(request) == request  # nothing else is kept: other texts belong to the programs
