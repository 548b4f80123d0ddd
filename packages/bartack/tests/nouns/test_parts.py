"""The six kinds of parts, and what their constructors reject."""

from typing import Any, get_args

import pytest

from bartack.nouns.errors import PartValidationError
from bartack.nouns.parts import (
    STRUCTURED,
    Continuation,
    FileRef,
    Image,
    Part,
    Span,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)


def test_there_are_exactly_six_kinds() -> None:
    """000-3.2.2, 000-7.2"""
    assert [part.kind for part in get_args(Part)] == [
        "text",
        "thinking",
        "tool_call",
        "tool_result",
        "image",
        "file_ref",
    ]


@pytest.mark.parametrize(
    "part",
    [
        Text("hi"),
        Thinking("hm"),
        ToolCall("c1", "read", {"path": "x"}),
        ToolResult("c1", "done"),
        Image("image/png", data=b"x"),
        FileRef("a.txt"),
    ],
    ids=lambda part: part.kind,
)
def test_a_part_is_an_immutable_value_with_a_short_constructor(part: Part) -> None:
    assert part == type(part)(**{name: getattr(part, name) for name in part.__struct_fields__})
    with pytest.raises(AttributeError):
        part.id = "other"  # type: ignore[misc]
    assert "None" not in repr(part)


def test_parts_of_different_kinds_are_never_equal() -> None:
    text: Part = Text("hi")
    assert text != Thinking("hi")


@pytest.mark.parametrize("source", [{}, {"data": b"x", "url": "https://x"}])
def test_an_image_has_exactly_one_of_data_and_url(source: dict[str, Any]) -> None:
    """000-3.2.7"""
    with pytest.raises(PartValidationError) as caught:
        Image("image/png", **source)
    assert (caught.value.path, caught.value.rule) == ("$", "000-3.2.7")


def test_an_image_may_be_inline_or_a_url() -> None:
    assert Image("image/png", data=b"").url is None
    assert Image("image/png", url="").data is None


def test_a_file_has_at_most_one_of_data_and_url() -> None:
    """000-3.2.8"""
    assert FileRef("a.txt").data is FileRef("a.txt", url="u").data is None
    with pytest.raises(PartValidationError) as caught:
        FileRef("a.txt", data=b"x", url="https://x")
    assert caught.value.rule == "000-3.2.8"


@pytest.mark.parametrize("content", ["", "text", {}, {"a": 1}, (), (Text("a"), Image("i", url="u"), FileRef("f"))])
def test_a_result_contains_text_an_object_or_parts(content: Any) -> None:
    """000-3.3.3"""
    assert ToolResult("c1", content).content == content


@pytest.mark.parametrize("part", [Thinking("x"), ToolCall("c", "t", {}), ToolResult("c", ""), "text", None])
def test_a_result_rejects_parts_that_are_not_content(part: Any) -> None:
    """000-3.3.3"""
    with pytest.raises(PartValidationError) as caught:
        ToolResult("c1", (Text("fine"), part))
    assert (caught.value.path, caught.value.rule) == ("$.content[1]", "000-3.3.3")


def test_a_call_and_a_result_need_an_id() -> None:
    """000-3.3.1, 000-3.3.2"""
    with pytest.raises(PartValidationError) as of_call:
        ToolCall("", "read", {})
    with pytest.raises(PartValidationError) as of_result:
        ToolResult("", "x")
    assert of_call.value.path == of_result.value.path == "$.toolCallId"
    assert (of_call.value.rule, of_result.value.rule) == ("000-6.1", "000-6.3")


def test_only_a_call_executed_by_the_provider_contains_its_result() -> None:
    """D-3.10"""
    result = ToolResult("c1", "found")
    assert ToolCall("c1", "search", {}, executed_by="provider", result=result).result is result
    with pytest.raises(PartValidationError) as caught:
        ToolCall("c1", "search", {}, result=result)
    assert (caught.value.path, caught.value.rule) == ("$.result", "D-3.10")


def test_a_call_cannot_contain_the_result_of_another() -> None:
    """000-6.3, D-3.10"""
    with pytest.raises(PartValidationError) as caught:
        ToolCall("c1", "search", {}, executed_by="provider", result=ToolResult("c2", "found"))
    assert (caught.value.path, caught.value.rule) == ("$.result.toolCallId", "000-6.3")


def test_continuation_data_names_its_provider_and_model() -> None:
    """D-3.9"""
    part = Thinking("", continuation=Continuation("anthropic", "claude", {"signature": "c2ln"}), time=Span())
    assert part.continuation == Continuation("anthropic", "claude", {"signature": "c2ln"})


def test_the_value_of_a_result_is_its_data_or_its_text() -> None:
    assert ToolResult("c1", "text").value == "text"
    assert ToolResult("c1", {"a": 1}).value == {"a": 1}
    assert ToolResult("c1", "[1]", metadata={STRUCTURED: [1]}).value == [1]
    assert ToolResult("c1", (Text("text"),)).value is None
