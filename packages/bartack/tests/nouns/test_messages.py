"""Messages: which parts a role accepts, the short constructors, and stamping."""

from datetime import UTC, datetime
from typing import Any, get_args

import pytest

from bartack.nouns.errors import PartValidationError
from bartack.nouns.messages import ROLE_PARTS, Message, Meta, Role, assistant, stamped, system, tool_message, user
from bartack.nouns.parts import FileRef, Image, Part, Text, Thinking, ToolCall, ToolResult

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
ONE_OF_EACH: list[Part] = [
    Text("a"),
    Thinking("b"),
    ToolCall("c1", "t", {}),
    ToolResult("c1", "r"),
    Image("image/png", url="u"),
    FileRef("f"),
]
RULES = {"system": "000-3.2.9", "user": "000-3.2.10", "assistant": "000-3.2.11", "tool": "000-3.2.12"}
ALLOWED = {
    "system": {"text", "thinking"},
    "user": {"text", "image", "file_ref"},
    "assistant": {"text", "thinking", "tool_call"},
    "tool": {"tool_result"},
}


def test_there_are_four_roles() -> None:
    """000-3.1.2"""
    assert get_args(Role) == ("system", "user", "assistant", "tool") == tuple(ROLE_PARTS)


@pytest.mark.parametrize("part", ONE_OF_EACH, ids=lambda part: part.kind)
@pytest.mark.parametrize("role", get_args(Role))
def test_a_role_accepts_its_own_kinds_of_part_only(role: Role, part: Part) -> None:
    """000-3.2.9, 000-3.2.10, 000-3.2.11, 000-3.2.12"""
    if part.kind in ALLOWED[role]:
        assert Message(role, (part,)).parts == (part,)
        return
    with pytest.raises(PartValidationError) as caught:
        Message(role, (part,))
    assert (caught.value.path, caught.value.rule) == ("$.parts[0]", RULES[role])


def test_an_unknown_role_is_rejected() -> None:
    role: Any = "developer"
    with pytest.raises(PartValidationError) as caught:
        Message(role, ())
    assert (caught.value.path, caught.value.rule) == ("$.role", "000-3.1.2")


def test_parts_are_a_tuple() -> None:
    parts: Any = [Text("hi")]
    with pytest.raises(PartValidationError) as caught:
        Message("user", parts)
    assert (caught.value.path, caught.value.rule) == ("$.parts", "000-3.1.1")


def test_a_value_that_is_not_a_part_is_rejected_with_its_type() -> None:
    parts: Any = ("hi",)
    with pytest.raises(PartValidationError, match="str"):
        Message("user", parts)


@pytest.mark.parametrize(
    ("role", "parts"),
    [
        ("assistant", (Text("a"), ToolCall("c1", "t", {}), ToolCall("c1", "u", {}))),
        ("tool", (ToolResult("c0", "a"), ToolResult("c1", "a"), ToolResult("c1", "b"))),
    ],
)
def test_a_call_id_appears_once_in_a_message(role: Role, parts: tuple[Part, ...]) -> None:
    """000-6.1, 000-3.2.15"""
    with pytest.raises(PartValidationError) as caught:
        Message(role, parts)
    assert (caught.value.path, caught.value.rule) == ("$.parts[2].payload.toolCallId", "000-6.1")


def test_a_subclass_of_a_part_is_allowed_where_the_part_is() -> None:
    class Note(Text, frozen=True):
        """A text of an application's own."""

    assert assistant(Note("a"), Note("b")).text == "ab"
    with pytest.raises(PartValidationError, match="not allowed"):
        Message("tool", (Note("a"),))


def test_the_content_can_be_read_by_kind() -> None:
    """000-3.2.14, 004-relations.2"""
    calls = (ToolCall("c1", "t", {}), ToolCall("c2", "t", {}))
    message = Message("assistant", (Thinking("h"), Text("a"), calls[0], Thinking("m"), Text("b"), calls[1]))
    assert (message.text, message.thinking, message.tool_calls) == ("ab", "hm", calls)
    results = (ToolResult("c1", "r"), ToolResult("c2", "s"))
    assert tool_message(*results).tool_results == results
    assert message.tool_results == ()
    assert tool_message(*results).tool_calls == ()
    assert assistant("hi").tool_calls == ()


def test_short_constructors_create_messages() -> None:
    image = Image("image/png", url="u")
    meta = Meta(agent="a")
    assert user("look", image, meta=meta) == Message("user", (Text("look"), image), meta=meta)
    assert system("be kind") == Message("system", (Text("be kind"),))
    assert assistant(Thinking("h"), "hi", meta=meta) == Message("assistant", (Thinking("h"), Text("hi")), meta=meta)
    assert tool_message() == Message("tool", ())


def test_stamping_adds_missing_stamps_and_keeps_the_others() -> None:
    """000-8.1"""
    fresh = stamped(user("hi"), id="m1", timestamp=NOON)
    assert (fresh.id, fresh.timestamp, fresh.run_id) == ("m1", NOON, None)
    again = stamped(fresh, id="m2", timestamp=NOON.replace(hour=13), run_id="r1")
    assert (again.id, again.timestamp, again.run_id) == ("m1", NOON, "r1")
    assert again.parts is fresh.parts
