"""`PartFactory` and `PartValidator` of 003."""

from datetime import UTC, datetime
from typing import Any, get_args

import msgspec
import pytest

from bartack import PartValidationError
from bartack.nouns.parts import Span
from bartack.nouns.tool_states import FilePartSource, FileSource, Pending
from bartack.views import part_factory, part_validator
from bartack.views.document import DOCUMENT
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
    """003-4.1.1, 003-3.1.1, 003-BR-01"""
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
        (msgspec.structs.replace(FILE, source={"type": "file", "path": "a.py"}), "003-3.7.2"),
        (msgspec.structs.replace(FILE, source=FileSource(path=5)), "003-3.7.2"),  # type: ignore[arg-type]
        (msgspec.structs.replace(FILE, mime=None), "003-3.7.1"),
        (msgspec.structs.replace(TEXT, id=5), "003-BR-01"),
        (msgspec.structs.replace(TEXT, text=123), "003-3.2.1"),
        (msgspec.structs.replace(TEXT, synthetic=1), "003-3.2.1"),
        (msgspec.structs.replace(TEXT, metadata={5: "x"}), "003-3.2.1"),
        (msgspec.structs.replace(REASONING, time=None), "003-3.3.1"),
        (msgspec.structs.replace(REASONING, time=Span(start=5)), "003-3.3.1"),  # type: ignore[arg-type]
        (msgspec.structs.replace(TOOL, state=None), "003-3.5.1"),
        (msgspec.structs.replace(TOOL, state=Pending("x", "{}")), "003-3.5.1"),  # type: ignore[arg-type]
        (msgspec.structs.replace(STEP_START, snapshot=5), "003-3.6.1"),
        (msgspec.structs.replace(STEP_FINISH, cost="x"), "003-3.6.2"),
        (msgspec.structs.replace(STEP_FINISH, cost=True), "003-3.6.2"),
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


SOURCES: list[dict[str, Any]] = [
    {"type": "file", "path": "a.py", "text": {"value": "@a.py", "start": 4, "end": 9}},
    {
        "type": "symbol",
        "path": "a.py",
        "name": "main",
        "range": {"start": {"line": 3, "character": 0}, "end": {"line": 9, "character": 4}},
        "kind": 12,
    },
    {"type": "resource", "uri": "docs://a", "clientName": "docs"},
]


@pytest.mark.parametrize(("source", "cls"), list(zip(SOURCES, get_args(FilePartSource), strict=True)))
def test_a_file_comes_from_a_file_a_symbol_or_a_resource(source: dict[str, Any], cls: type[Any]) -> None:
    """003-3.7.2"""
    part = DOCUMENT.load(FilePart, {**DOCUMENT.dump(FILE), "source": source})
    assert type(part.source) is cls
    assert part_validator.validate_part(part).valid
    assert DOCUMENT.dump(part)["source"] == source


@pytest.mark.parametrize(
    ("make", "path"),
    [
        (lambda: part_factory.create_text_part(SESSION_ID, MESSAGE_ID, 5, id="p"), "$.text"),  # type: ignore[arg-type]
        (lambda: part_factory.create_step_start_part(SESSION_ID, 5, id="p"), "$.message_id"),  # type: ignore[arg-type]
        (
            lambda: part_factory.create_step_finish_part(SESSION_ID, MESSAGE_ID, "stop", "x", None, id="p"),  # type: ignore[arg-type]
            "$.cost",
        ),
        (
            lambda: part_factory.create_tool_part(SESSION_ID, MESSAGE_ID, "c", "t", None, id="p"),  # type: ignore[arg-type]
            "$.state",
        ),
        (
            lambda: part_factory.create_reasoning_part(SESSION_ID, MESSAGE_ID, "hm", id="p", start=5),  # type: ignore[arg-type]
            "$.time.start",
        ),
    ],
)
def test_the_factory_refuses_an_argument_of_the_wrong_type(make: Any, path: str) -> None:
    """003-4.1.1"""
    with pytest.raises(PartValidationError) as caught:
        make()
    assert caught.value.path == path


def test_a_refused_part_is_logged_without_its_content(caplog: pytest.LogCaptureFixture) -> None:
    """003-6.1.1"""
    with pytest.raises(PartValidationError):
        part_validator.WithPartsBuilder(ASSISTANT).add(msgspec.structs.replace(TEXT, id=["secret"]))
    (record,) = caplog.records
    assert (record.name, record.levelname) == ("bartack.views", "WARNING")
    assert record.getMessage() == "Refused a part at $.parts[0]: it violates 003-BR-01."


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
    other = msgspec.structs.replace(TEXT, id="p8")
    builder.add(other)
    with pytest.raises(PartValidationError) as caught:
        builder.add(part)
    assert (caught.value.path, caught.value.rule) == ("$.parts[2]", rule)
    assert builder.build().parts == (TEXT, other)


def test_an_invalid_part_is_rejected_with_its_path() -> None:
    """003-6.1.1"""
    builder = part_validator.WithPartsBuilder(ASSISTANT)
    with pytest.raises(PartValidationError, match="is not a UUID") as caught:
        builder.add(msgspec.structs.replace(TEXT, session_id="s"))
    assert (caught.value.path, caught.value.rule) == ("$.parts[0]", "003-BR-04")
