"""The turns of a session, its branches, and whether its last run was cut."""

from msgspec.structs import replace

from bartack import Entry, Fact, ModelRef, RunEnded, RunStarted, SessionHeader, Text, assistant, user
from bartack.cli.chat.turns import branch_of, has_open_run, other_ends, turns_of
from bartack.nouns.messages import Message
from tests.sample_session import chain

MODEL = ModelRef("openai", "test")
BEGUN, OVER = RunStarted(model=MODEL), RunEnded("completed")


def session(*questions: str) -> list[Entry]:
    facts: list[Fact] = [SessionHeader()]
    for question in questions:
        facts += [BEGUN, user(question), assistant("Yes."), OVER]
    return chain(*facts)


def test_a_turn_is_a_message_of_the_user_with_all_that_follows() -> None:
    turns = turns_of(session("one", "two"))
    assert [turn.message.text for turn in turns] == ["one", "two"]
    assert [(turn.before, turn.end) for turn in turns] == [("e0", "e4"), ("e4", "e8")]


def test_an_undo_leaves_nothing_of_the_turn_also_where_its_run_was_cut() -> None:
    entries = session("one", "two")[:-2]  # run_started and the message
    assert turns_of(entries)[-1].before == "e4"
    assert turns_of(entries)[-1].end == "e6"


def test_a_message_that_comes_while_a_run_works_is_a_turn_of_its_own() -> None:
    entries = chain(SessionHeader(), BEGUN, user("one"), assistant("Hm."), user("two"), assistant("Yes."), OVER)
    assert [(turn.message.text, turn.before, turn.end) for turn in turns_of(entries)] == [
        ("one", "e0", "e3"),
        ("two", "e3", "e6"),
    ]


def test_what_nobody_said_is_no_turn() -> None:
    synthetic: Message = user(Text("Go on.", synthetic=True))
    entries = chain(SessionHeader(), BEGUN, user("one"), assistant("Hm."), synthetic, assistant("Yes."), OVER)
    assert [(turn.before, turn.end) for turn in turns_of(entries)] == [("e0", "e6")]
    assert turns_of([]) == []


def test_a_branch_is_the_way_from_the_first_entry_to_its_end() -> None:
    trunk = session("one", "two")
    other = replace(trunk[5], id="b5", parent_id="e4", seq=10)
    end = replace(trunk[6], id="b6", parent_id="b5", seq=11)
    entries = [*trunk, other, end]
    assert [entry.id for entry in branch_of(entries, "b6")] == ["e0", "e1", "e2", "e3", "e4", "b5", "b6"]
    assert branch_of(entries, "nowhere") == []
    assert other_ends(["e8", "b6"], branch_of(entries, "b6")) == ["e8"]
    assert other_ends(["e8", "b6"], branch_of(entries, "e4")) == ["b6", "e8"]  # the newest first


def test_a_run_is_open_until_something_says_that_it_ended() -> None:
    entries = session("one", "two")
    assert [has_open_run(entries[:length]) for length in range(len(entries) + 1)] == [
        *(False, False),
        *(True, True, True, False),
        *(True, True, True, False),
    ]
