"""Return values of tools as results: every value can be stored, and long text is cut and kept in a file."""

import math
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bartack import ErrorCode, FileRef, Image, Text, ToolResult
from bartack.nouns import wire
from bartack.nouns.parts import FULL_OUTPUT, Part, ToolContent
from bartack.tools import ToolContext, ToolDefinition, ToolOutput
from bartack.tools.output import limited, result_of
from tests.tools.rounds import Bench

PNG = b"\x89PNG\r\n\x1a\n rest"


class Point(msgspec.Struct):
    x: int
    y: int = 0


@dataclass
class Box:
    corner: Point
    label: str


class Opaque:
    def __repr__(self) -> str:
        return "<opaque>"


circle: list[Any] = []
circle.append(circle)

deep: dict[str, Any] = {}
for _ in range(100):
    deep = {"d": deep}


@pytest.mark.parametrize(
    ("value", "content"),
    [
        ("text", "text"),
        (None, ""),
        ("", ""),
        (3, "3"),
        (True, "true"),
        (1.5, "1.5"),
        ([1, "a", None], '[1,"a",null]'),
        ([], "[]"),
        ((1, 2), "[1,2]"),
        ({"a": [1]}, {"a": [1]}),
        (Point(1), {"x": 1, "y": 0}),
        (Box(Point(1), "b"), {"corner": {"x": 1, "y": 0}, "label": "b"}),
        ([Point(1)], '[{"x":1,"y":0}]'),
        ({1: "a"}, {"1": "a"}),
        (Decimal("1.5"), "1.5"),
        (Path("a/b"), "a/b"),
        (Opaque(), "<opaque>"),
        ({"o": Opaque()}, {"o": "<opaque>"}),
        ("half \ud83d", "half \ufffd"),
        ("whole \U0001f600", "whole \U0001f600"),
        (PNG, (Image("image/png", data=PNG),)),
        (b"GIF89a", (Image("image/gif", data=b"GIF89a"),)),
        (b"RIFF1234WEBP", (Image("image/webp", data=b"RIFF1234WEBP"),)),
        (b"\x00\x01", (FileRef("output.bin", data=b"\x00\x01", mime_type="application/octet-stream", size=2),)),
        (Image("image/png", url="https://x"), (Image("image/png", url="https://x"),)),
        (["see", Image("image/png", data=PNG), 3], (Text("see"), Image("image/png", data=PNG), Text("3"))),
        ((Text("a"), FileRef("b")), (Text("a"), FileRef("b"))),
    ],
)
def test_content_of_every_kind_of_value(value: Any, content: Any) -> None:
    result = result_of(value, "c1")
    assert result.content == content
    assert wire.decode(Part, wire.encode(result)) == result


@pytest.mark.parametrize(
    "value",
    [
        {"n": math.nan}, {"n": math.inf}, deep, circle, {"self": circle}, {"t": "\ud800"}, {"\ud800": 1}, [math.nan],
        {"big": 10**5000}, {(1, 2): 3}, ToolOutput("x", metadata={"o": object()}, title="\ud800"),
    ],
)  # fmt: skip
def test_values_that_cannot_be_stored_are_converted(value: Any) -> None:
    wire.encode(result_of(value, "c1"))


@given(st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()) | st.binary()
    | st.just(Opaque()),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters()) | st.integers(), inner) | st.tuples(inner),
))  # fmt: skip
def test_any_value_gives_a_result_that_can_be_stored(value: Any) -> None:
    result = limited(result_of(value, "c1"), 20)
    assert wire.decode(Part, wire.encode(result)) == result


@pytest.mark.parametrize(
    ("value", "stored_value"),
    [
        ([1, "a", None], [1, "a", None]), ([], []), ((1, 2), [1, 2]), ({3}, [3]), ([Point(1)], [{"x": 1, "y": 0}]),
        (3, 3), (1.5, 1.5), (True, True), (0, 0), ({"a": 1}, {"a": 1}), (Point(1), {"x": 1, "y": 0}), ("text", "text"),
        ("3", "3"), (None, ""), ([math.nan], "[NaN]"), (PNG, None), ([Image("image/png", data=PNG), 3], None),
        (ToolOutput([1], metadata={"n": 1}), [1]), (ToolResult("other", {"a": 1}), {"a": 1}),
    ],
)  # fmt: skip
def test_structured_data_stays_data(value: Any, stored_value: Any) -> None:
    stored = wire.decode(Part, wire.encode(result_of(value, "c1")))
    assert isinstance(stored, ToolResult)
    assert stored.value == stored_value
    assert type(stored.value) is type(stored_value)


def test_data_whose_text_is_cut_is_kept_in_the_file_only() -> None:
    result = limited(result_of(ToolOutput(list(range(1_000)), metadata={"n": 1}), "c1"), 100)
    assert (result.value, result.metadata) == (None, {"n": 1})
    assert msgspec.json.decode(whole(result.content)[0].data or b"") == list(range(1_000))


def test_a_result_is_taken_as_it_is() -> None:
    error = ToolResult("other", "no", is_error=True, error_code=ErrorCode.TOOL_DENIED, title="T", metadata={"n": 1})
    assert result_of(error, "c1") == msgspec.structs.replace(error, tool_call_id="c1")
    assert result_of(ToolResult("other", "no", is_error=True), "c1").error_code is ErrorCode.TOOL_FAILED
    contents: list[ToolContent] = ["", (), {}, (Text("a"), Image("image/png", data=PNG))]
    for content in contents:
        assert result_of(ToolResult("other", content), "c1") == ToolResult("c1", content)
    wire.encode(result_of(ToolResult("other", {"n": math.nan}, title="\ud800", metadata={"o": object()}), "c1"))


def test_pydantic_models_are_objects() -> None:
    pydantic = pytest.importorskip("pydantic")
    model = pydantic.create_model("Model", a=(int, 1))()
    assert result_of(model, "c1").content == {"a": 1}
    assert result_of([model], "c1").content == '[{"a":1}]'


def whole(content: Any) -> list[FileRef]:
    return [part for part in content if isinstance(part, FileRef)]


def test_long_text_is_cut_in_the_middle_and_kept_in_a_file() -> None:
    text = "".join(f"line {number}\n" for number in range(1_000))
    content = limited(ToolResult("c1", text), 300).content
    assert isinstance(content, tuple)
    excerpt = content[0]
    assert isinstance(excerpt, Text)
    assert excerpt.text.startswith("line 0\n")
    assert excerpt.text.endswith("line 999\n")
    assert f"{len(text) - 300:,} of {len(text):,} characters omitted" in excerpt.text
    [file] = whole(content)
    assert file == FileRef(
        "c1.txt", data=text.encode(), mime_type="text/plain", size=len(text), metadata={FULL_OUTPUT: True}
    )


def test_content_within_the_limit_is_unchanged() -> None:
    for content in ("x" * 300, {"a": "b"}, (Text("x" * 300), Image("image/png", data=PNG))):
        assert limited(ToolResult("c1", content), 300).content == content


def test_a_long_object_becomes_cut_json_text_and_a_json_file() -> None:
    value = {"items": list(range(1_000))}
    content = limited(ToolResult("c1", value), 100).content
    [file] = whole(content)
    assert file.mime_type == "application/json"
    assert msgspec.json.decode(file.data or b"") == value


def test_the_texts_of_parts_share_one_limit_and_images_stay() -> None:
    picture = Image("image/png", data=PNG)
    content = limited(ToolResult("c1", (Text("X" * 80), picture, Text("Y" * 80), Text("Z" * 80))), 100).content
    assert isinstance(content, tuple)
    texts = [part.text for part in content if isinstance(part, Text)]
    assert texts[0] == "X" * 80
    assert picture in content
    assert sum(text.count(letter) for text, letter in zip(texts, "XYZ", strict=True)) == 100
    assert [part.data for part in whole(content)] == [b"Y" * 80, b"Z" * 80]


async def test_each_tool_has_its_own_limit() -> None:
    async def execute(values: dict[str, Any], ctx: ToolContext) -> str:
        return "x" * 1_000

    big = ToolDefinition(name="big", description="", parameter_schema={}, execute=execute, max_output_chars=100)
    result = await Bench(big).one("big")
    assert [part.size for part in whole(result.content)] == [1_000]
    roomy = ToolDefinition(name="big", description="", parameter_schema={}, execute=execute)
    assert (await Bench(roomy).one("big")).content == "x" * 1_000


class Textless:
    """Has no text of its own."""


@pytest.mark.parametrize(
    ("value", "description"),
    [
        (Textless(), "a value of type Textless"),
        (Textless, "the class Textless"),
        (iter([1]), "a value of type list_iterator"),
        ((number for number in [1]), "a value of type generator"),
        (len, "a value of type builtin_function_or_method"),
        (lambda: 1, "a value of type function"),
    ],
)
def test_a_value_that_is_neither_text_nor_data_is_an_error(value: Any, description: str) -> None:
    result = result_of(value, "c1")
    assert (result.is_error, result.error_code) == (True, ErrorCode.TOOL_FAILED)
    assert str(result.content).startswith(
        f"The tool was executed, but returned {description}, which is neither text nor data"
    )


def test_odd_values_have_a_stable_form() -> None:
    assert result_of({"b", "a", "c"}, "c1").value == ["a", "b", "c"]
    assert result_of({"one": Textless()}, "c1").content == {"one": "<Textless>"}
    assert result_of(float("nan"), "c1").content == "NaN"
    assert not result_of({"b"}, "c1").is_error
