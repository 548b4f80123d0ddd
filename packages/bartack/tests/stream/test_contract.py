"""The contract: which deltas are accepted, and which rule a rejected one violates."""

from datetime import UTC, datetime
from typing import Any, get_args

import pytest

from bartack.nouns.deltas import (
    Delta,
    Done,
    Failed,
    MessageDelta,
    Start,
    TextDelta,
    ThinkingDelta,
    ToolCallArgs,
    ToolCallEnd,
    ToolCallStart,
    Usage,
)
from bartack.nouns.errors import ErrorCode, StreamError
from bartack.nouns.parts import Text, Thinking
from bartack.nouns.tables import AssemblyStatus
from bartack.stream import assembler, contract
from bartack.stream.contract import Contract, StreamLimits

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
START = Start("m", "q")
CALL = ToolCallStart("c1", "read")
SURROGATE = "half \ud83d"


def at(seq: int, delta: Any, **stamps: Any) -> MessageDelta:
    return MessageDelta(**({"run_id": "r1", "seq": seq, "delta": delta, "timestamp": NOON} | stamps))


def after(*deltas: Delta, run_id: str | None = None, limits: StreamLimits | None = None) -> Contract:
    """A contract that has admitted these deltas, numbered from 0."""
    contract = Contract(run_id, limits)
    for seq, delta in enumerate(deltas):
        contract.admit(at(seq, delta))
    return contract


def books(contract: Contract) -> dict[str, Any]:
    """The state of the contract, except which stamps it checked last and which call it looked at last."""
    fields = {name: value for name, value in vars(contract).items() if not name.endswith("_seen")}
    current, room, rooms = fields.pop("_args_id"), fields.pop("_args_left"), fields.pop("_args_room")
    fields["rooms"] = {**rooms, current: room} if current is not None else rooms
    return {name: value.copy() if hasattr(value, "copy") else value for name, value in fields.items()}


def refusal(contract: Contract, stamped: Any) -> StreamError:
    """The error for this delta; also checks that nothing changed."""
    before = books(contract)
    with pytest.raises(StreamError) as caught:
        contract.admit(stamped)
    assert books(contract) == before
    return caught.value


def test_a_complete_stream_is_accepted() -> None:
    contract = after(
        START,
        ThinkingDelta("hm", continuation={"signature": "c2ln"}),
        TextDelta("héllo", new_part=True),
        CALL,
        ToolCallStart("c2", "search", executed_by="provider"),
        ToolCallArgs("c1", '{"a":'),
        ToolCallArgs("c2", "{}"),
        ToolCallEnd("c2", result=(Text("found"),)),
        ToolCallArgs("c1", '"é"}'),
        ToolCallEnd("c1"),
        Usage(1, 2, cost=0.5),
    )
    assert (contract.status, contract.ended, contract.last_seq) == (AssemblyStatus.STARTED, False, 10)
    contract.admit(at(99, Done("tool_calls")))
    assert (contract.status, contract.ended, contract.last_seq) == (AssemblyStatus.DONE, True, 99)


def test_a_stream_may_fail_at_any_time_after_its_start() -> None:
    contract = after(START, CALL, ToolCallArgs("c1", "{"), Failed(ErrorCode.TIMEOUT, "too slow", status=504))
    assert (contract.status, contract.ended) == (AssemblyStatus.ERROR, True)


ANY: list[Delta] = [
    START,
    TextDelta("a"),
    ThinkingDelta("a"),
    CALL,
    ToolCallArgs("c1", ""),
    ToolCallEnd("c1"),
    Usage(1, 1),
    Done("stop"),
    Failed(ErrorCode.TIMEOUT),
]


@pytest.mark.parametrize("delta", ANY[1:], ids=lambda delta: delta.kind)
def test_nothing_is_accepted_before_start(delta: Delta) -> None:
    assert refusal(Contract(), at(0, delta)).rule == "000-5.1"


@pytest.mark.parametrize("delta", ANY, ids=lambda delta: delta.kind)
@pytest.mark.parametrize("end", [Done("stop"), Failed(ErrorCode.TIMEOUT)], ids=["done", "error"])
def test_nothing_is_accepted_after_the_end(end: Delta, delta: Delta) -> None:
    expected = "000-5.2" if delta.kind in ("done", "error") else "D-3.1"
    assert refusal(after(START, end), at(9, delta)).rule == expected


def test_a_second_start_is_rejected() -> None:
    assert refusal(after(START), at(1, START)).rule == "001-8.3"


@pytest.mark.parametrize("seq", [0, -1, "1", 1.0, True, None])
def test_seq_is_an_integer_that_increases(seq: Any) -> None:
    assert refusal(after(START), at(seq, TextDelta("a"))).rule == "000-5.3"


def test_seq_may_begin_anywhere_from_zero_and_leave_gaps() -> None:
    contract = Contract()
    assert refusal(contract, at(-1, START)).rule == "000-5.3"
    contract.admit(at(7, START))
    contract.admit(at(1000, TextDelta("a")))
    assert contract.last_seq == 1000


def test_a_delta_of_another_run_is_rejected() -> None:
    contract = after(START, run_id="r1")
    assert refusal(contract, at(1, TextDelta("a"), run_id="r2")).rule == "001-4.2.2"


@pytest.mark.parametrize(
    "stamps",
    [
        {"run_id": 5},
        {"run_id": None},
        {"run_id": SURROGATE},
        {"timestamp": "noon"},
        {"timestamp": None},
        {"timestamp": datetime(2026, 1, 1)},  # noqa: DTZ001
    ],
)
def test_the_stamps_are_checked(stamps: dict[str, Any]) -> None:
    assert refusal(Contract(), at(0, START, **stamps)).rule == "000-4.1"


def test_a_run_may_have_any_name() -> None:
    Contract("läuft").admit(at(0, START, run_id="läuft"))


@pytest.mark.parametrize("value", [START, None, "start", {"kind": "start"}])
def test_only_stamped_deltas_are_accepted(value: Any) -> None:
    assert refusal(Contract(), value).rule == "000-4.1"


@pytest.mark.parametrize("delta", [Text("a"), None, "text"])
def test_only_the_nine_kinds_of_delta_are_accepted(delta: Any) -> None:
    assert refusal(after(START), at(1, delta)).rule == "000-4.2"


PROVIDER_CALL = ToolCallStart("c1", "search", executed_by="provider")
NAN = float("nan")
BAD: list[Any] = [
    ("000-4.3", (), Start(5, "q")),  # type: ignore[arg-type]
    ("000-4.3", (), Start("m", None)),  # type: ignore[arg-type]
    ("000-4.3", (), Start(SURROGATE, "q")),
    ("000-4.3", (), Start("m", SURROGATE)),
    ("000-4.3", (), Start("m", "q", provider=5)),  # type: ignore[arg-type]
    ("000-4.4", (START,), TextDelta(5)),  # type: ignore[arg-type]
    ("000-4.4", (START,), TextDelta(b"a")),  # type: ignore[arg-type]
    ("000-4.4", (START,), TextDelta(SURROGATE)),
    ("000-4.4", (START,), TextDelta("a", continuation="x")),  # type: ignore[arg-type]
    ("000-4.4", (START,), TextDelta("a", continuation={"x": NAN})),
    ("000-4.4", (START,), TextDelta("a", continuation={"x": SURROGATE})),
    ("000-4.4", (START,), TextDelta("a", continuation={"x": b"raw"})),
    ("000-4.5", (START,), ThinkingDelta(None)),  # type: ignore[arg-type]
    ("000-4.5", (START,), ThinkingDelta(SURROGATE)),
    ("000-4.5", (START,), ThinkingDelta("", continuation={5: 1})),  # type: ignore[dict-item]
    ("000-4.6", (START,), ToolCallStart(5, "t")),  # type: ignore[arg-type]
    ("000-4.6", (START,), ToolCallStart(SURROGATE, "t")),
    ("000-4.6", (START,), ToolCallStart("c1", None)),  # type: ignore[arg-type]
    ("000-4.6", (START,), ToolCallStart("c1", "t", executed_by="nobody")),  # type: ignore[arg-type]
    ("000-6.1", (START,), ToolCallStart("", "t")),
    ("D-3.8", (START, CALL), CALL),
    ("D-3.8", (START, CALL, ToolCallEnd("c1")), CALL),
    ("000-4.7", (START, CALL), ToolCallArgs("c1", 5)),  # type: ignore[arg-type]
    ("000-4.7", (START, CALL), ToolCallArgs("c1", SURROGATE)),
    ("000-4.7", (START, CALL), ToolCallArgs([], "{}")),  # type: ignore[arg-type]
    ("000-5.5", (START, CALL), ToolCallArgs("c2", "{}")),
    ("000-5.5", (START, CALL, ToolCallEnd("c1")), ToolCallArgs("c1", "{}")),
    ("000-4.8", (START, CALL), ToolCallEnd({})),  # type: ignore[arg-type]
    ("000-4.8", (START, PROVIDER_CALL), ToolCallEnd("c1", result=5)),  # type: ignore[arg-type]
    ("000-4.8", (START, PROVIDER_CALL), ToolCallEnd("c1", result=(Thinking("x"),))),  # type: ignore[arg-type]
    ("000-4.8", (START, PROVIDER_CALL), ToolCallEnd("c1", result={"x": NAN})),
    ("000-4.8", (START, PROVIDER_CALL), ToolCallEnd("c1", result=SURROGATE)),
    ("001-5.2.5", (START,), ToolCallEnd("c1")),
    ("001-5.2.5", (START, CALL, ToolCallEnd("c1")), ToolCallEnd("c1")),
    ("D-3.10", (START, CALL), ToolCallEnd("c1", result="found")),
    ("000-4.9", (START,), Usage(-1, 2)),
    ("000-4.9", (START,), Usage(1, -2, 3)),
    ("000-4.9", (START,), Usage(True, 2, 3)),
    ("000-4.9", (START,), Usage("1", 2, 3)),  # type: ignore[arg-type]
    ("000-4.9", (START,), Usage(1, 2, cost=NAN)),
    ("000-4.9", (START,), Usage(1, 2, cache_read_tokens="x")),  # type: ignore[arg-type]
    ("D-3.4.5", (START,), Done("bored")),  # type: ignore[arg-type]
    ("D-3.4.5", (START,), Done([])),  # type: ignore[arg-type]
    ("000-4.10", (START,), Done("stop", raw_finish_reason=SURROGATE)),
    ("001-5.2.5", (START, CALL), Done("stop")),
    ("000-4.11", (START,), Failed("timeout")),  # type: ignore[arg-type]
    ("000-4.11", (START,), Failed(ErrorCode.TIMEOUT, SURROGATE)),
    ("000-4.11", (START,), Failed(ErrorCode.TIMEOUT, status="504")),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("rule", "before", "delta"), BAD, ids=[f"{rule}-{n}" for n, (rule, _, _) in enumerate(BAD)])
def test_an_invalid_delta_is_rejected_with_its_rule(rule: str, before: tuple[Delta, ...], delta: Delta) -> None:
    contract = after(*before)
    error = refusal(contract, at(50, delta))
    assert (error.rule, error.code, error.retryable) == (rule, ErrorCode.CONTRACT_VIOLATION, False)


LIMITS = StreamLimits(max_chars=14, max_args_chars=4)  # every delta counts for one more than its text


@pytest.mark.parametrize(
    ("before", "delta"),
    [
        ((START, TextDelta("12345")), TextDelta("67890123")),
        ((START, TextDelta("12345")), ThinkingDelta("67890123")),
        ((START, CALL, ToolCallArgs("c1", "12")), ToolCallArgs("c1", "345")),
        ((START, CALL, TextDelta("12345678")), ToolCallArgs("c1", "1234")),
        ((START, *[TextDelta("")] * 14), TextDelta("")),
        ((START, *[TextDelta("")] * 14), Usage(1, 1)),
        ((START, *[TextDelta("")] * 14), CALL),
    ],
    ids=["text", "thinking", "arguments", "together", "deltas", "usage", "calls"],
)
def test_everything_is_limited_in_size(before: tuple[Delta, ...], delta: Delta) -> None:
    error = refusal(after(*before, limits=LIMITS), at(50, delta))
    assert (error.rule, error.code) == ("D-3.11.2", ErrorCode.STREAM_TOO_LARGE)


def test_a_stream_of_exactly_the_limit_is_accepted() -> None:
    contract = after(START, TextDelta("1234567"), CALL, ToolCallArgs("c1", "1234"), limits=LIMITS)
    assert contract.last_seq == 3


def test_arguments_are_limited_for_each_call() -> None:
    second = ToolCallStart("c2", "t")
    after(START, CALL, second, ToolCallArgs("c1", "1234"), ToolCallArgs("c2", "1234"), limits=LIMITS)


# -- deltas without stamps


def test_bare_deltas_are_admitted_up_to_the_first_that_is_not_allowed() -> None:
    deltas: list[Delta] = [START, TextDelta("a"), ToolCallArgs("c1", "{}"), TextDelta("b")]
    contract = Contract()
    allowed, error = contract.admit_bare(deltas)
    assert allowed == deltas[:2]
    assert error is not None
    assert error.rule == "000-5.5"
    assert contract.admit_bare([TextDelta("c")]) == ([TextDelta("c")], None)


def test_a_bare_delta_that_is_out_of_place_is_refused() -> None:
    allowed, error = Contract().admit_bare([TextDelta("a")])
    assert allowed == []
    assert error is not None
    assert error.rule == "000-5.1"


def test_the_limit_of_arguments_applies_to_each_of_two_interleaved_calls() -> None:
    second_call = ToolCallStart("c2", "read")
    pieces = [ToolCallArgs("c1", "1"), ToolCallArgs("c2", "12"), ToolCallArgs("".join(["c", "2"]), "34")]
    limits = StreamLimits(max_args_chars=4)
    contract = after(START, CALL, second_call, *pieces, ToolCallArgs("c1", "234"), limits=limits)
    assert refusal(contract, at(50, ToolCallArgs("c1", "5"))).code is ErrorCode.STREAM_TOO_LARGE
    assert refusal(contract, at(50, ToolCallArgs("c2", "5"))).code is ErrorCode.STREAM_TOO_LARGE


def test_every_kind_of_delta_has_a_check_and_a_step() -> None:
    assert set(contract._CHECKS) == set(assembler._STEPS) == set(get_args(Delta))
