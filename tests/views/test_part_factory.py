"""`PartFactory` and `PartValidator` of 003."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from bartack import PartValidationError
from bartack.nouns.parts import Span
from bartack.nouns.tool_states import Pending
from bartack.views import part_factory, part_validator
from bartack.views.document_parts import (
    AssistantInfo,
    CacheTokens,
    DocumentPart,
    FilePart,
    MessageTime,
    ReasoningPart,
    StepFinishPart,
    TokenStats,
    UserInfo,
    WithParts,
)

NOW = datetime(2026, 1, 2, tzinfo=UTC)
SESSION_ID = "0198c0de-0000-7000-8000-000000000001"
MESSAGE_ID = "0198c0de-0000-7000-8000-000000000002"
TOKENS = TokenStats(input=3, output=2, reasoning=1, cache=CacheTokens(read=1, write=0))

TEXT = part_factory.create_text_part(SESSION_ID, MESSAGE_ID, "hi", id="p1")
REASONING = part_factory.create_reasoning_part(SESSION_ID, MESSAGE_ID, "hm", id="p2", start=NOW)
TOOL = part_factory.create_tool_part(SESSION_ID, MESSAGE_ID, "c1", "weather", Pending({}, "{}"), id="p3")
STEP_START = part_factory.create_step_start_part(SESSION_ID, MESSAGE_ID, id="p4")
STEP_FINISH = part_factory.create_step_finish_part(SESSION_ID, MESSAGE_ID, "stop", 0.5, TOKENS, id="p5")
FILE = FilePart(id="p6", session_id=SESSION_ID, message_id=MESSAGE_ID, mime="text/plain", url="file://a.txt")
ALL: list[DocumentPart] = [TEXT, REASONING, TOOL, STEP_START, STEP_FINISH, FILE]


def test_the_factory_creates_each_part_with_its_ids() -> None:
    """003-4.1.1, 003-3.1.1, 003-BR-01, D-1.8"""
    for part in ALL:
        assert (part.session_id, part.message_id) == (SESSION_ID, MESSAGE_ID)
        assert part.id
    assert TEXT.text == "hi"
    assert (
        ReasoningPart(id="p2", session_id=SESSION_ID, message_id=MESSAGE_ID, text="hm", time=Span(start=NOW))
        == REASONING
    )
    assert (TOOL.call_id, TOOL.tool, TOOL.state) == ("c1", "weather", Pending({}, "{}"))
    assert (
        StepFinishPart(id="p5", session_id=SESSION_ID, message_id=MESSAGE_ID, reason="stop", cost=0.5, tokens=TOKENS)
        == STEP_FINISH
    )


def test_parts_differ_by_type() -> None:
    """003-BR-03, 003-3.9.4"""
    assert [part.type for part in ALL] == ["text", "reasoning", "tool", "step-start", "step-finish", "file"]


@pytest.mark.parametrize(
    ("check", "mine"),
    [
        (part_validator.is_text_part, TEXT),
        (part_validator.is_reasoning_part, REASONING),
        (part_validator.is_tool_part, TOOL),
        (part_validator.is_step_start_part, STEP_START),
        (part_validator.is_step_finish_part, STEP_FINISH),
    ],
)
def test_each_check_is_true_for_its_own_part_only(check: Any, mine: DocumentPart) -> None:
    """003-4.3.1"""
    assert [part for part in ALL if check(part)] == [mine]


@pytest.mark.parametrize("part", ALL, ids=lambda part: part.type)
def test_good_parts_are_valid(part: DocumentPart) -> None:
    """003-4.3.2"""
    assert part_validator.validate_part(part) == part_validator.ValidationResult(True)


@pytest.mark.parametrize(
    ("part", "rule"),
    [
        (msgspec.structs.replace(TEXT, id=""), "003-BR-01"),
        (msgspec.structs.replace(TEXT, session_id="s"), "003-BR-04"),
        (msgspec.structs.replace(TEXT, message_id=5), "003-BR-04"),
        (msgspec.structs.replace(TEXT, message_id=None), "003-BR-04"),
        (msgspec.structs.replace(REASONING, time=Span()), "003-3.3.1"),
        (msgspec.structs.replace(FILE, source={"type": "dream"}), "003-3.7.2"),
        ("text", "003-BR-03"),
    ],
)
def test_an_invalid_part_is_reported_with_the_rule_it_violates(part: Any, rule: str) -> None:
    """003-4.3.2, 003-BR-01, 003-BR-03, 003-BR-04"""
    result = part_validator.validate_part(part)
    assert not result.valid
    assert result.rules == (rule,)
    assert len(result.errors) == 1
    assert rule not in result.errors[0]


@pytest.mark.parametrize("source", ["file", "symbol", "resource"])
def test_a_file_comes_from_a_file_a_symbol_or_a_resource(source: str) -> None:
    """003-3.7.2"""
    assert part_validator.validate_part(msgspec.structs.replace(FILE, source={"type": source})).valid


ASSISTANT = AssistantInfo(id=MESSAGE_ID, time=MessageTime(created=NOW))


def test_with_parts_is_built_part_by_part_in_order() -> None:
    """003-7.2.1, 003-7.2.2, 003-3.9.3"""
    builder = part_validator.WithPartsBuilder(ASSISTANT)
    for part in (STEP_START, TEXT, TOOL, STEP_FINISH):
        builder.add(part)
    assert builder.build() == WithParts(ASSISTANT, (STEP_START, TEXT, TOOL, STEP_FINISH))


@pytest.mark.parametrize(
    ("part", "rule"),
    [
        (TEXT, "003-BR-02"),
        (msgspec.structs.replace(TEXT, text="another text"), "003-BR-02"),
        (msgspec.structs.replace(TEXT, id="p9", message_id=SESSION_ID), "003-3.1.1"),
    ],
)
def test_a_part_of_another_message_is_rejected_and_not_added(part: DocumentPart, rule: str) -> None:
    """003-BR-02, 003-6.1.1"""
    builder = part_validator.WithPartsBuilder(UserInfo(id=MESSAGE_ID, time=MessageTime(created=NOW))).add(TEXT)
    with pytest.raises(PartValidationError) as caught:
        builder.add(part)
    assert (caught.value.path, caught.value.rule) == ("$.parts[1]", rule)
    assert builder.build().parts == (TEXT,)


def test_an_invalid_part_is_rejected_with_its_path() -> None:
    """003-6.1.1"""
    builder = part_validator.WithPartsBuilder(ASSISTANT)
    with pytest.raises(PartValidationError, match="is not a UUID") as caught:
        builder.add(msgspec.structs.replace(TEXT, session_id="s"))
    assert (caught.value.path, caught.value.rule) == ("$.parts[0]", "003-BR-04")
