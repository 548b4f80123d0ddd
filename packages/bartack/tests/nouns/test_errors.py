"""The error classes and codes, and the attributes that callers read."""

import ast
import copy
import gc
import pickle
import re
from pathlib import Path

import pytest

from bartack.nouns import errors
from bartack.nouns.errors import (
    AgentError,
    BartackError,
    ConfigError,
    Conflict,
    ErrorCode,
    InvalidStateTransition,
    KeyReused,
    LeaseLost,
    MissingRequiredField,
    ModelError,
    NotAdopted,
    NotFound,
    NothingToResume,
    PartValidationError,
    QueueFull,
    SessionInUse,
    StoreError,
    StreamError,
    ToolError,
    exception_text,
    nearest_name,
)

DEFAULT_CODES = {
    BartackError: ErrorCode.INTERNAL_ERROR,
    ConfigError: ErrorCode.INVALID_CONFIG,
    StreamError: ErrorCode.CONTRACT_VIOLATION,
    ModelError: ErrorCode.PROVIDER_ERROR,
    PartValidationError: ErrorCode.INVALID_VALUE,
    MissingRequiredField: ErrorCode.MISSING_FIELD,
    ToolError: ErrorCode.TOOL_FAILED,
    AgentError: ErrorCode.INTERNAL_ERROR,
    QueueFull: ErrorCode.QUEUE_FULL,
    StoreError: ErrorCode.STORAGE_FAILED,
    NotFound: ErrorCode.NOT_FOUND,
    NotAdopted: ErrorCode.NOT_ADOPTED,
    Conflict: ErrorCode.CONFLICT,
    SessionInUse: ErrorCode.CONFLICT,
    LeaseLost: ErrorCode.CONFLICT,
    NothingToResume: ErrorCode.CONFLICT,
    KeyReused: ErrorCode.CONFLICT,
}


def test_every_error_has_one_root_and_every_code_is_an_enum() -> None:
    """D-2.7"""
    public = [getattr(errors, name) for name in errors.__all__]
    classes = [cls for cls in public if isinstance(cls, type) and issubclass(cls, BartackError)]
    assert (
        set(classes)
        == {*DEFAULT_CODES, InvalidStateTransition}
        == set(public) - {ErrorCode, exception_text, nearest_name}
    )
    assert all(isinstance(cls.default_code, ErrorCode) for cls in classes)


def test_the_tree_in_the_docstring_matches_the_classes() -> None:
    drawn: dict[str, str] = {}
    path: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        stripped = line.lstrip(" │├└─")
        name = stripped.split(" ")[0]
        if name in errors.__all__:
            depth = (len(line) - len(stripped) - 4) // 4
            path[depth:] = [name]
            drawn[name] = path[depth - 1] if depth else "Exception"
    assert drawn == {cls.__name__: cls.__bases__[0].__name__ for cls in (*DEFAULT_CODES, InvalidStateTransition)}


@pytest.mark.parametrize("cls", DEFAULT_CODES)
def test_an_error_has_a_message_a_code_and_retryable(cls: type[BartackError]) -> None:
    error = cls("it broke")
    assert (error.message, error.code, error.cause) == ("it broke", DEFAULT_CODES[cls], None)
    assert error.retryable is error.code.retryable
    assert str(error).startswith("it broke")


def test_a_caller_can_override_retryable() -> None:
    cause = OSError("cable")
    error = ModelError("no", code=ErrorCode.TIMEOUT, retryable=False, cause=cause, status=504, retry_after_ms=10)
    assert (error.code, error.retryable, error.status, error.retry_after_ms) == (ErrorCode.TIMEOUT, False, 504, 10)
    assert error.cause is error.__cause__ is cause


def test_an_error_without_a_cause_keeps_its_context() -> None:
    def tool() -> None:
        try:
            raise OSError("the real fault")
        except OSError:
            raise ToolError("the tool failed")  # noqa: B904 - the context is what is tested

    with pytest.raises(ToolError) as caught:
        tool()
    assert isinstance(caught.value.__context__, OSError)
    assert not caught.value.__suppress_context__


def test_exactly_these_codes_are_retryable() -> None:
    assert {code.value for code in ErrorCode if code.retryable} == {
        "stream_truncated",
        "stream_malformed",
        "rate_limited",
        "overloaded",
        "server_error",
        "connection_failed",
        "timeout",
        "queue_full",
    }


def test_a_code_is_its_name_in_lower_case() -> None:
    assert all(code.value == code.name.lower() == str(code) for code in ErrorCode)


def test_the_table_in_the_docstring_lists_every_code_once() -> None:
    rows = re.findall(r"^ *\| `(\w+)` \| (.+) \|$", ErrorCode.__doc__ or "", re.MULTILINE)
    assert [code for code, _ in rows] == [code.value for code in ErrorCode]
    assert len({meaning for _, meaning in rows}) == len(rows)


# Where codes are only looked up: hints for people, and the states of tool calls.
CONSUMERS = ("app", "cli", "testing", "web")


def produced_in(source: str) -> set[str]:
    """The codes that a module uses other than in comparisons."""
    gc.disable()  # a collection in the middle of it can raise SystemError (CPython issue 106905)
    try:
        tree = ast.parse(source)
    finally:
        gc.enable()
    codes = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "ErrorCode"
    ]
    compared = {
        inner
        for outer in ast.walk(tree)
        if isinstance(outer, ast.Compare | ast.MatchValue)
        for inner in ast.walk(outer)
    }
    return {code.attr for code in codes if code not in compared}


def test_every_code_is_produced_somewhere() -> None:
    src = Path(errors.__file__).parents[1]
    modules = [path for path in src.rglob("*.py") if path.relative_to(src).parts[0] not in CONSUMERS]
    texts = [path.read_text(encoding="utf-8") for path in modules if path.name not in ("errors.py", "tool_state.py")]
    produced = {code for text in texts if "ErrorCode." in text for code in produced_in(text)}
    defaults = {code.name for code in (*DEFAULT_CODES.values(), InvalidStateTransition.default_code)}
    assert {code.name for code in ErrorCode} - produced - defaults == set()


def test_a_stream_error_names_its_rule() -> None:
    error = StreamError("late", rule="000-5.1", code=ErrorCode.STREAM_TOO_LARGE)
    assert (error.rule, str(error), error.code) == ("000-5.1", "late", ErrorCode.STREAM_TOO_LARGE)
    assert StreamError("late").rule is None


def test_an_invalid_transition_has_statuses_and_its_message_events() -> None:
    """003-6.2.1"""
    edges = {"close": "closed", "lock": "locked", "bolt": "locked"}
    error = InvalidStateTransition("open", "fly", edges, attempted="flying")
    assert (error.name, error.event) == ("InvalidStateTransition", "fly")
    assert (error.current, error.attempted, error.valid) == ("open", "flying", ("closed", "locked"))
    assert error.code is ErrorCode.INVALID_TRANSITION
    assert str(error) == "'fly' is not valid in state 'open'; valid: close, lock, bolt"
    assert "nothing" in str(InvalidStateTransition("open", "fly", {}))
    assert InvalidStateTransition("open", "fly", {}).attempted == "fly"
    assert error.details == {
        "currentStatus": "open",
        "attemptedStatus": "flying",
        "validTransitions": ["closed", "locked"],
    }


def test_a_validation_error_has_its_path_and_rule() -> None:
    error = PartValidationError("no", path="$.text", rule="000-3.2.3")
    assert (str(error), error.rule) == ("no - at `$.text`", "000-3.2.3")
    assert str(PartValidationError("no")) == "no"
    outer = error.under(".payload").under("[2]").under(".parts")
    assert outer is error
    assert outer.path == "$.parts[2].payload.text"


def test_a_conflict_has_the_actual_tail() -> None:
    assert Conflict("moved on", tail="e9").tail == "e9"
    assert Conflict("moved on").tail is None


@pytest.mark.parametrize(
    "error",
    [
        StreamError("late", rule="000-5.1"),
        ModelError("no", code=ErrorCode.TIMEOUT, status=504),
        InvalidStateTransition("open", "fly", {"close": "closed"}, attempted="flying"),
        PartValidationError("no", path="$.text", rule="000-3.2.3"),
        MissingRequiredField("no", path="$.text"),
        Conflict("moved on", tail="e9"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_can_be_copied_and_sent_to_another_process(error: BartackError) -> None:
    for twin in (copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert type(twin) is type(error)
        assert (str(twin), vars(twin)) == (str(error), vars(error))


def test_the_text_of_an_exception_never_raises() -> None:
    class Unprintable(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    class Panicking(BaseException):
        def __str__(self) -> str:
            raise Panicking

    assert exception_text(Panicking()) == "Panicking (its text cannot be read)"
    assert exception_text(ValueError("x")) == "ValueError: x"
    assert exception_text(Unprintable()) == "Unprintable (its text cannot be read)"


def test_a_misspelled_name_has_the_nearest_one_as_a_hint() -> None:
    assert nearest_name("temperture", ("seed", "temperature")) == "temperature"
    assert nearest_name("levitate", ("seed", "temperature")) is None
