"""`BranchReader`: one display for all runs of a branch."""

from bartack.display import changes as c
from bartack.display.run_reader import BranchReader, turn_start
from bartack.events import LiveDeltas, LiveEntry
from bartack.nouns.deltas import MessageDelta, TextDelta
from bartack.nouns.entries import Entry, RunEnded, RunStarted, ToolStarted
from bartack.nouns.messages import assistant, user
from tests.protocols.events import CALL, NOW, RUN, START, Log, answer, failed, result


def read(reader: BranchReader, entries: list[Entry]) -> list[str]:
    return [type(change).__name__ for entry in entries for change in reader.read(LiveEntry(str(entry.seq), entry))]


def test_every_run_and_the_history_before_it_is_shown() -> None:
    log = Log(None)
    log.entry(RunStarted(), run_id="one")
    log.entry(user("Go"), run_id="one")
    log.entry(assistant(CALL), run_id="one")  # history: no model call of this run made it
    log.entry(failed(), run_id="one")
    log.entry(RunEnded(status="failed"), run_id="one")
    log.entry(RunStarted(), run_id="two")
    log.entry(result("c1"), run_id="two")
    log.entry(answer("Done."), run_id="two")
    assert read(BranchReader(), log.entries) == [
        *("StepStarted", "CallStarted", "CallGrew", "CallReady", "StepFinished"),
        *("AttemptFailed", "RunEnds"),
        "CallEnded",
        *("StepStarted", "TextStarted", "TextGrew", "TextEnded", "StepFinished"),
    ]


def test_an_answer_grows_before_it_is_stored() -> None:
    log, reader = Log(), BranchReader()
    read(reader, [log.entry(RunStarted())])
    deltas = MessageDelta(RUN, 0, START, NOW), MessageDelta(RUN, 1, TextDelta("It "), NOW)
    assert [type(change) for change in reader.read(LiveDeltas("p", deltas))] == [
        c.StepStarted,
        c.TextStarted,
        c.TextGrew,
    ]
    assert read(reader, [log.entry(answer("It rains."))]) == ["TextGrew", "TextEnded", "StepFinished"]


def test_calls_are_found_by_their_keys() -> None:
    log, reader = Log(), BranchReader()
    read(reader, [log.entry(answer(CALL)), log.entry(ToolStarted(tool_call_id="c1", tool_name="look", arguments={}))])
    assert reader.find_id("c1") == "c1"


def test_a_turn_starts_after_a_run_or_with_a_message_outside_of_one() -> None:
    log = Log(None)
    branch = [log.entry(fact) for fact in (assistant("Hi"), user("Go"), assistant(CALL), RunEnded(status="completed"))]
    assert [turn_start(branch, end) for end in range(5)] == [0, 0, 1, 1, 4]
