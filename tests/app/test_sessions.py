"""The turns and branches of a session, and whether its last run is unfinished."""

from msgspec.structs import replace

from bartack import Entry, Fact, ModelRef, RunEnded, RunStarted, SessionHeader, Text, assistant, user
from bartack.app.sessions import branch_to, has_unfinished_run, other_heads, turns_of
from bartack.nouns.messages import Message
from tests.sample_session import chain

MODEL = ModelRef("openai", "test")
STARTED, ENDED = RunStarted(model=MODEL), RunEnded("completed")


def session(*questions: str) -> list[Entry]:
    facts: list[Fact] = [SessionHeader()]
    for question in questions:
        facts += [STARTED, user(question), assistant("Yes."), ENDED]
    return chain(*facts)


def test_a_turn_is_a_user_message_with_everything_up_to_the_next_one() -> None:
    turns = turns_of(session("one", "two"))
    assert [turn.message.text for turn in turns] == ["one", "two"]
    assert [(turn.before, turn.end) for turn in turns] == [("e0", "e4"), ("e4", "e8")]


def test_undo_goes_back_before_the_turn_even_if_its_run_was_interrupted() -> None:
    entries = session("one", "two")[:-2]  # run_started and the message
    assert turns_of(entries)[-1].before == "e4"
    assert turns_of(entries)[-1].end == "e6"


def test_a_message_queued_during_a_run_is_a_turn_of_its_own() -> None:
    entries = chain(SessionHeader(), STARTED, user("one"), assistant("Hm."), user("two"), assistant("Yes."), ENDED)
    assert [(turn.message.text, turn.before, turn.end) for turn in turns_of(entries)] == [
        ("one", "e0", "e3"),
        ("two", "e3", "e6"),
    ]


def test_a_synthetic_message_starts_no_turn() -> None:
    synthetic: Message = user(Text("Go on.", synthetic=True))
    entries = chain(SessionHeader(), STARTED, user("one"), assistant("Hm."), synthetic, assistant("Yes."), ENDED)
    assert [(turn.before, turn.end) for turn in turns_of(entries)] == [("e0", "e6")]
    assert turns_of([]) == []


def test_a_branch_leads_from_the_first_entry_to_its_head() -> None:
    trunk = session("one", "two")
    other = replace(trunk[5], id="b5", parent_id="e4", seq=10)
    end = replace(trunk[6], id="b6", parent_id="b5", seq=11)
    entries = [*trunk, other, end]
    assert [entry.id for entry in branch_to("b6", entries)] == ["e0", "e1", "e2", "e3", "e4", "b5", "b6"]
    assert branch_to("nowhere", entries) == []
    assert other_heads(["e8", "b6"], branch_to("b6", entries)) == ["e8"]
    assert other_heads(["e8", "b6"], branch_to("e4", entries)) == ["b6", "e8"]  # newest first


def test_a_run_is_unfinished_until_its_end_is_stored() -> None:
    entries = session("one", "two")
    assert [has_unfinished_run(entries[:length]) for length in range(len(entries) + 1)] == [
        *(False, False),
        *(True, True, True, False),
        *(True, True, True, False),
    ]
