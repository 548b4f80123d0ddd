"""`wrong_types`: every kind of field, with values that fit and values that do not."""

from datetime import UTC, datetime
from typing import Any

import pytest

from bartack.nouns.config import ModelConfig, SpecificTool, ThinkingConfig, ToolsConfig
from bartack.nouns.errors import PartValidationError
from bartack.nouns.messages import Message, Meta
from bartack.nouns.noun import Noun, check_types, wrong_types
from bartack.nouns.parts import Span, Text

NOW = datetime(2026, 1, 2, tzinfo=UTC)


class Box(Noun, frozen=True, kw_only=True):
    text: str = "x"
    count: int | None = None
    share: float = 1.0
    is_open: bool = False
    at: datetime | None = None
    names: tuple[str, ...] = ()
    colours: frozenset[str] = frozenset()
    flags: dict[str, bool] | None = None
    anything: Any = None
    spans: tuple[Span, ...] | None = None


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"count": 3, "share": 2, "is_open": True, "at": NOW},
        {"names": ("a", "b"), "colours": frozenset({"red"}), "flags": {"a": True}, "anything": object()},
        {"spans": (Span(start=NOW), Span())},
    ],
)
def test_values_of_the_declared_types_are_right(fields: dict[str, Any]) -> None:
    box = Box(**fields)
    assert list(wrong_types(box)) == []
    assert check_types(box, "003-4.1.1") is box


@pytest.mark.parametrize(
    ("fields", "path", "problem"),
    [
        ({"text": 5}, "$.text", "expected text, got an integer"),
        ({"count": 1.5}, "$.count", "expected an integer, got a number"),
        ({"count": True}, "$.count", "expected an integer, got a boolean"),
        ({"share": "hot"}, "$.share", "expected a number, got text"),
        ({"is_open": None}, "$.is_open", "expected a boolean, got nothing"),
        ({"at": 1000}, "$.at", "expected a datetime, got an integer"),
        ({"names": ["a"]}, "$.names", "expected a tuple, got a list"),
        ({"names": ("a", 5)}, "$.names", "expected a tuple, got a tuple"),
        ({"colours": {"red"}}, "$.colours", "expected a frozenset, got a set"),
        ({"colours": frozenset({5})}, "$.colours", "expected a frozenset, got a frozenset"),
        ({"flags": {"a": 1}}, "$.flags", "expected a dict, got a dict"),
        ({"flags": {5: True}}, "$.flags", "expected a dict, got a dict"),
        ({"spans": (Span(), Span(end="now"))}, "$.spans[1].end", "expected a datetime, got text"),  # type: ignore[arg-type]
    ],
)
def test_a_value_of_another_type_is_reported_with_its_path(fields: dict[str, Any], path: str, problem: str) -> None:
    box = Box(**fields)
    assert list(wrong_types(box)) == [(path, problem)]
    with pytest.raises(PartValidationError) as caught:
        check_types(box, "003-4.1.1")
    assert (caught.value.path, caught.value.rule) == (path, "003-4.1.1")


def test_words_and_alternatives_are_named() -> None:
    tools = ToolsConfig(approval={"read": "never"})
    assert list(wrong_types(tools)) == []
    message = Message("user", (Text(5),), meta=Meta(finish_reason="tired"))  # type: ignore[arg-type]
    assert [path for path, _ in wrong_types(message)] == ["$.parts[0].text", "$.meta.finish_reason"]
    assert (
        list(wrong_types(ModelConfig("m", tool_choice=SpecificTool("t"), thinking=ThinkingConfig(effort="low")))) == []
    )
