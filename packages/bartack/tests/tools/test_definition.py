"""`@tool`: the schema and the argument check, both from one signature."""

import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from datetime import date
from enum import Enum
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, Optional, get_overloads

import jsonschema
import msgspec
import pytest

from bartack import BartackError, ErrorCode, ToolError
from bartack.nouns.config import ToolSpec
from bartack.tools import Tool, ToolContext, ToolDefinition, tool


class Place(msgspec.Struct):
    """Somewhere."""

    name: str
    height: Annotated[int, msgspec.Meta(ge=0)] = 0


@dataclass
class Trip:
    to: Place
    via: list[str] = field(default_factory=list)


class Unit(Enum):
    METRIC = "metric"
    IMPERIAL = "imperial"


@tool
async def weather(city: str, days: int = 1) -> str:
    """Weather forecast for a city."""
    return f"{city}: {days}"


@tool(name="plan_trip", timeout_ms=5_000, idempotent=True, retries=2, strict=True)
def plan(
    trip: Trip,
    ctx: ToolContext,
    *,
    mode: Literal["car", "train"] = "train",
    budget: Optional[float] = None,  # noqa: UP045 - the older spelling is meant
    tags: dict[str, list[int]] = {},  # noqa: B006 - a default that is mutable is meant
    unit: Unit = Unit.METRIC,
    on: date | None = None,
    note: Annotated[str, "Anything else."] = "",
) -> str:
    """Plan a trip,
    from door to door.

    Use it only if the user asks for a trip:
    - by car
    - by train

    Args:
        trip: Where to go.
        mode (str): How to travel:
            by car or by train.
        budget: Money, in euros.

    Returns:
        The plan: as text.
    """
    return f"{ctx.tool_name} {trip.to.name} {mode} {budget} {tags} {unit} {on} {note}"


def test_schema_of_a_simple_function() -> None:
    """004-tool-spec.2"""
    assert weather.spec == ToolSpec(
        "weather",
        {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer", "default": 1}},
            "required": ["city"],
            "additionalProperties": False,
        },
        description="Weather forecast for a city.",
    )
    for options in ({"strict": True}, {"defer_loading": True}, {"input_examples": [{"city": "Rome"}]}):
        spec = tool(**options)(weather.function).spec
        assert {name: getattr(spec, name) for name in options} == {
            name: tuple(value) if isinstance(value, list) else value for name, value in options.items()
        }


def test_schema_of_a_rich_signature_has_descriptions_and_defaults() -> None:
    schema = plan.parameter_schema
    jsonschema.Draft202012Validator.check_schema(schema)
    shapes = schema["properties"]
    assert "ctx" not in shapes
    assert schema["required"] == ["trip"]
    assert shapes["trip"] == {"$ref": "#/$defs/Trip", "description": "Where to go."}
    assert shapes["mode"]["enum"] == ["car", "train"]
    assert shapes["mode"]["description"] == "How to travel: by car or by train."
    assert shapes["mode"]["default"] == "train"
    assert {shape["type"] for shape in shapes["budget"]["anyOf"]} == {"number", "null"}
    assert shapes["budget"]["default"] is None
    assert shapes["tags"]["additionalProperties"] == {"type": "array", "items": {"type": "integer"}}
    assert shapes["tags"]["default"] == {}
    assert shapes["unit"]["default"] == "metric"
    assert shapes["note"] == {"type": "string", "description": "Anything else.", "default": ""}
    assert schema["$defs"]["Place"]["properties"]["height"]["minimum"] == 0
    assert "Arguments" not in schema["$defs"]
    assert plan.description == (
        "Plan a trip,\nfrom door to door.\n\nUse it only if the user asks for a trip:\n- by car\n- by train"
    )


def test_the_schema_accepts_what_the_reader_accepts() -> None:
    arguments = {
        "trip": {"to": {"name": "Rome"}, "via": ["Milan"]},
        "mode": "car",
        "tags": {"a": [1]},
        "unit": "metric",
    }
    jsonschema.validate(arguments, plan.parameter_schema)
    values = plan.read_arguments(arguments)
    assert values == {
        "trip": Trip(Place("Rome"), ["Milan"]),
        "mode": "car",
        "tags": {"a": [1]},
        "unit": Unit.METRIC,
    }


def test_a_tool_is_still_a_function() -> None:
    text = plan(Trip(Place("Rome")), ToolContext(tool_name="x"))
    assert text == "x Rome train None {} Unit.METRIC None "
    assert inspect.iscoroutinefunction(weather.function)


async def test_an_async_tool_is_still_a_coroutine_function() -> None:
    assert await weather("Paris", days=2) == "Paris: 2"


def test_004_tool_definition_1_every_field_is_there() -> None:
    assert (plan.name, plan.timeout_ms, plan.idempotent, plan.retries, plan.strict) == (
        "plan_trip",
        5_000,
        True,
        2,
        True,
    )
    assert (plan.requires_approval, plan.requires_runtime, plan.requires_agent, plan.sequential) == (False,) * 4
    assert plan.spec.strict is True
    assert isinstance(plan, Tool)
    assert not plan.is_async
    assert weather.is_async


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, ["missing required field `trip`"]),
        ({"trip": {"to": {"name": 3}}}, ["str", "int", "$.trip.to.name"]),
        ({"trip": {"to": {"name": "x", "height": -1}}}, ["$.trip.to.height", "0"]),
        ({"trip": {"to": {"name": "x"}, "via": ["a", None]}}, ["$.trip.via[1]"]),
        ({"trip": {"to": {"name": "x"}}, "mode": "boat"}, ["boat", "$.mode"]),
        ({"trip": {"to": {"name": "x"}}, "tags": {"a": ["b"]}}, ["$.tags[...]"]),
        ({"trip": {"to": {"name": "x"}}, "when": 1}, ["unknown field `when`", "known: trip, mode"]),
        ({"trip": {"to": {"name": "x"}}, "ctx": {}}, ["unknown field `ctx`"]),
    ],
)
def test_invalid_arguments_are_refused_with_reason_and_path(arguments: dict[str, Any], expected: list[str]) -> None:
    with pytest.raises(ToolError) as caught:
        plan.read_arguments(arguments)
    assert caught.value.code is ErrorCode.TOOL_BAD_ARGUMENTS
    assert [text for text in expected if text not in caught.value.message] == []


def test_a_number_written_as_text_is_read_as_a_number() -> None:
    assert weather.read_arguments({"city": "Paris", "days": "3"}) == {"city": "Paris", "days": 3}
    assert weather.read_arguments({"city": "3"}) == {"city": "3"}
    with pytest.raises(ToolError, match="days"):
        weather.read_arguments({"city": "Paris", "days": "three"})


def test_param_lines_describe_parameters_too() -> None:
    @tool
    def look(where: str, deep: bool = False) -> None:
        """Look around.
        :param where: The place
            to look at.
        :param bool deep: Under things too.
        :returns: nothing
        """

    assert look.description == "Look around."
    shapes = look.parameter_schema["properties"]
    assert shapes["where"]["description"] == "The place to look at."
    assert shapes["deep"]["description"] == "Under things too."


def test_sections_that_are_underlined_describe_parameters_too() -> None:
    @tool
    def look(where: str, deep: bool = False, long: int = 1) -> None:
        """Look around.

        Notes: take your time.

        Parameters
        ----------
        where : str
            The place
            to look at.
        deep: bool, optional
            Under things too.
        long
            In hours.

        Returns
        -------
        None

        Notes
        -----
        deep : this describes nothing
        """

    assert look.description == "Look around.\n\nNotes: take your time."
    shapes = look.parameter_schema["properties"]
    assert shapes["where"]["description"] == "The place to look at."
    assert shapes["deep"]["description"] == "Under things too."
    assert shapes["long"]["description"] == "In hours."


def test_a_description_may_begin_with_what_is_returned() -> None:
    @tool
    def look() -> None:
        """Returns: the view.

        Raises:
            OSError: In the dark.
        """

    assert look.description == "Returns: the view."


def test_a_function_without_a_docstring_has_no_description() -> None:
    @tool
    def bare() -> None: ...

    assert bare.spec == ToolSpec(
        "bare", {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
    )


def _untyped() -> Callable[..., Any]:
    def f(x):  # type: ignore[no-untyped-def]
        return x

    return f


def _varied(*names: str) -> None: ...


def _positional(name: str, /) -> None: ...


def _odd(name: str, thing: Callable[[], int]) -> None: ...


def _generator() -> Any:
    yield 1


async def _async_generator() -> Any:
    yield 1


def _lost(x: "NoSuchType") -> None: ...  # type: ignore[name-defined]  # noqa: F821


@pytest.mark.parametrize(
    "function",
    [_untyped(), _varied, _positional, _odd, _generator, _async_generator, _lost, dict],
    ids=lambda f: f.__name__,
)
def test_a_function_that_a_model_could_not_call_is_refused_at_definition(function: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match="tool"):
        tool(function)


def test_a_name_without_its_keyword_is_refused() -> None:
    with pytest.raises(TypeError, match="@tool takes a function, not 'weather'; pass a name as name="):
        tool("weather")  # type: ignore[call-overload]


def test_a_parameter_of_an_unsupported_type_is_named() -> None:
    with pytest.raises(TypeError) as caught:
        tool(_odd)
    assert str(caught.value) == (
        "tool '_odd': parameter 'thing': type <class 'collections.abc.Callable'> is not supported; "
        "use built-in types, enums, dataclasses, TypedDicts, msgspec structs or pydantic models"
    )


def test_a_method_needs_its_object() -> None:
    class Shop:
        def order(self, title: str) -> str:
            return title

    with pytest.raises(TypeError, match=r"'self' has no type hint; pass the method of an object"):
        tool(Shop.order)
    assert tool(Shop().order).read_arguments({"title": "Bar tacks"}) == {"title": "Bar tacks"}


@pytest.mark.parametrize("name", [None, "the weather", "météo", "weather.get"])
def test_a_name_that_providers_refuse_is_refused_at_definition(name: str | None) -> None:
    with pytest.raises(TypeError, match="letters, digits, _ and -"):
        tool(name=name)(lambda: None)
    assert tool(name="get-weather_2")(lambda: None).name == "get-weather_2"


async def test_an_object_that_can_be_called_can_be_a_tool() -> None:
    class Search:
        """Holds an index."""

        async def __call__(self, query: str, ctx: ToolContext) -> str:
            """Search the index."""
            return f"{query} {ctx.tool_name}"

    class Find(Search):
        """Find a book."""

        async def __call__(self, query: str, ctx: ToolContext) -> str:
            return "found"

    assert tool(Find()).description == "Find a book."
    definition = tool(Search())
    assert (definition.name, definition.description, definition.is_async) == ("Search", "Search the index.", True)
    assert await definition.execute({"query": "x"}, ToolContext(tool_name="Search")) == "x Search"


async def test_what_a_partial_has_set_is_hidden_from_the_model() -> None:
    async def order(customer: str, title: str, copies: int = 1) -> str:
        """Order a book."""
        return f"{customer}: {copies} x {title}"

    for bound in (partial(order, "ann"), partial(order, customer="ann")):
        definition = tool(bound)
        assert (definition.name, definition.description, definition.is_async) == ("order", "Order a book.", True)
        assert list(definition.parameter_schema["properties"]) == ["title", "copies"]
        assert await definition.execute({"title": "Bar tacks"}, ToolContext()) == "ann: 1 x Bar tacks"
        with pytest.raises(ToolError):
            definition.read_arguments({"title": "Bar tacks", "customer": "bob"})


@pytest.mark.parametrize("hint", [ToolContext | None, Annotated[ToolContext[int], "the run"]])
def test_a_context_may_be_optional_or_annotated(hint: Any) -> None:
    def f(x: int, ctx: hint = None) -> Any:
        return ctx

    definition = tool(f)
    context = ToolContext[int]()
    assert list(definition.parameter_schema["properties"]) == ["x"]
    assert definition.execute({"x": 1}, context) is context


def test_a_default_of_none_makes_null_valid() -> None:
    def f(x: str = None, y: Annotated[int | None, "A number."] = None) -> None: ...  # type: ignore[assignment]  # noqa: RUF013

    definition = tool(f)
    null = {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None}
    assert definition.parameter_schema["properties"]["x"] == null
    assert definition.read_arguments({"x": None, "y": None}) == {"x": None, "y": None}


def test_paths_and_objects_can_be_parameters() -> None:
    def f(path: Path, others: list[PurePosixPath] | None = None, data: object = None) -> None: ...

    definition = tool(f)
    shapes = definition.parameter_schema["properties"]
    assert shapes["path"] == {"type": "string", "format": "path"}
    assert shapes["data"] == {"default": None}
    values = {"path": "a/b", "others": ["c"], "data": [1]}
    assert definition.read_arguments(values) == {"path": Path("a/b"), "others": [PurePosixPath("c")], "data": [1]}
    with pytest.raises(ToolError, match="Expected `str`, got `int`"):
        definition.read_arguments({"path": 1})


async def _later(arguments: dict[str, Any]) -> bool:
    return False


@pytest.mark.parametrize(
    "wrong",
    [{"name": ""}, {"timeout_ms": 0}, {"retries": -1}, {"max_output_chars": 0}, {"requires_approval": _later}],
)
def test_an_invalid_definition_is_refused(wrong: dict[str, Any]) -> None:
    good: dict[str, Any] = {"name": "x", "description": "", "parameter_schema": {}, "execute": lambda values, _: values}
    ToolDefinition(**good)
    with pytest.raises(BartackError) as caught:
        ToolDefinition(**{**good, **wrong})
    assert caught.value.code is ErrorCode.INVALID_CONFIG


def test_a_default_that_is_not_json_is_left_out_of_the_schema() -> None:
    @tool
    def f(x: Any = object()) -> None: ...  # noqa: B008 - a default that JSON cannot say is meant

    assert f.parameter_schema["properties"]["x"] == {}
    assert f.read_arguments({}) == {}


def test_constraints_of_pydantic_apply_to_parameters() -> None:
    pydantic = pytest.importorskip("pydantic")

    def walk(km: Annotated[int, pydantic.Field(gt=0, description="how far")] = 5) -> int:
        return km

    definition = tool(walk)
    shape = definition.parameter_schema["properties"]["km"]
    assert shape == {"type": "integer", "exclusiveMinimum": 0, "description": "how far", "default": 5}
    assert definition.read_arguments({"km": "3"}) == {"km": 3}
    with pytest.raises(ToolError, match="greater than 0"):
        definition.read_arguments({"km": 0})


def test_pydantic_models_can_be_parameters() -> None:
    pydantic = pytest.importorskip("pydantic")

    class Leg(pydantic.BaseModel):  # type: ignore[misc, name-defined]
        km: int = pydantic.Field(gt=0)

    class Route(pydantic.BaseModel):  # type: ignore[misc, name-defined]
        name: str
        legs: list[Leg] = pydantic.Field(default_factory=list)

    def f(route: Any, other: Any = None) -> str:
        return str(route.name)

    f.__annotations__ = {"route": Route, "other": Leg | None, "return": str}
    ride = tool(f)
    jsonschema.Draft202012Validator.check_schema(ride.parameter_schema)
    good = {"route": {"name": "a", "legs": [{"km": 3}]}}
    jsonschema.validate(good, ride.parameter_schema)
    assert ride.read_arguments(good)["route"].legs[0].km == 3
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"route": {"name": "a", "legs": [{"km": 0}]}}, ride.parameter_schema)
    with pytest.raises(ToolError, match=r"legs\.0\.km: .*greater than 0.*`\$\.route`"):
        ride.read_arguments({"route": {"name": "a", "legs": [{"km": 0}]}})


def test_a_schema_that_cannot_be_checked_is_refused_with_the_name_of_the_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    def define(schema: dict[str, Any]) -> ToolDefinition:
        return ToolDefinition(name="x", description="", parameter_schema=schema, execute=lambda v, c: v)

    with pytest.raises(ToolError, match="Tool 'x': Invalid JSON Schema") as caught:
        define({"type": "hologram"})
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    unique = {"properties": {"tags": {"uniqueItems": True}}}
    with pytest.raises(ToolError, match="unique"):
        define(unique).read_arguments({"tags": [1, 1]})
    monkeypatch.setitem(sys.modules, "jsonschema_rs", None)
    with pytest.raises(ToolError, match=r"Tool 'x': .*: pip install 'bartack\[http\]'") as caught:
        define(unique)
    assert caught.value.code is ErrorCode.MISSING_DEPENDENCY


def test_the_decorator_takes_every_option_of_a_definition() -> None:
    """`name` and `description` have defaults there: the function's own."""
    (_, with_options) = get_overloads(tool)
    derived = {"parameter_schema", "execute", "read", "deps_type"}  # these come from the function
    of_others = {"digest", "changed", "native"}  # these describe a definition from elsewhere
    options = inspect.signature(with_options).parameters
    declared = {own.name: own for own in fields(ToolDefinition) if own.name not in derived | of_others}
    assert options.keys() == declared.keys()
    for name in declared.keys() - {"name", "description"}:
        assert (options[name].annotation, options[name].default) == (declared[name].type, declared[name].default), name
