"""`LiveScreen` on a terminal that records its bytes."""

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.segment import Segment

from bartack.display.changes import (
    CallAsked,
    CallDecided,
    CallEnded,
    CallProgressed,
    CallStarted,
    Change,
    RunEnds,
    SubagentChanged,
)
from bartack.events import (
    Compacted,
    EntryAppended,
    Event,
    ModelSwitched,
    Retrying,
    RunPaused,
    Snapshot,
    StatusChanged,
)
from bartack.formats.losses import Loss, LossReport
from bartack.nouns.deltas import (
    Delta,
    Done,
    Failed,
    TextDelta,
    ThinkingDelta,
    ToolCallArgs,
    ToolCallStart,
)
from bartack.nouns.entries import ApprovalDecided, ApprovalRequired, CompactionSummary, Entry, Fact, RunStarted
from bartack.nouns.errors import ErrorCode
from bartack.nouns.messages import Message, Meta, ModelRef, assistant, stamped, tool_message
from bartack.nouns.parts import ToolCall, ToolResult
from bartack.nouns.tables import AgentStatus
from bartack_code.terminal.screen import LiveScreen, PlainScreen, new_screen
from tests.code.terminal.emulator import Emulator
from tests.code.terminal.event_builders import (
    NOW,
    Clock,
    answer,
    completed,
    console_of,
    errored,
    finished,
    pending,
    plain_console,
    present,
    running,
    stored,
    written,
)
from tests.code.terminal.scripted_run import CASES, MARKDOWN, play

CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
REQUEST = ApprovalRequired(tool_call_id="c1", tool_name="run_command", arguments={"command": "rm -r build"})
LAST_WORDS = {
    "markdown": "the docs",
    "code": "Done with it.",
    "text": "Paragraph 059",
    "tools": "All done.",
    "hostile": "code",
}
OURS = re.compile(r"\x1b\[(?:[0-9;]*m|[0-9]*A|2K|\?25[lh])|\r(?=\x1b\[2K)")  # all sequences that a screen may send


def shown(items: Iterable[Change | Event], *, width: int = 60, thinking: bool = False, is_closed: bool = True) -> str:
    """What was printed, without colors and cursor movements."""
    console = console_of(width)
    screen = LiveScreen(console, thinking=thinking)
    present(screen, *items)
    if is_closed:
        screen.close()
    return CODES.sub("", written(console))


def a_call(number: int, output: str) -> list[Change]:
    call_id, arguments = f"c{number}", {"path": "some/long/path/to.py"}
    return [
        *answer(ToolCallStart(call_id, "look"), ToolCallArgs(call_id, '{"path": "some/long')),
        stored(call_id),
        running(call_id, "look", arguments, title="a title"),
        completed(call_id, "look", arguments, output),
    ]


STEPS: Sequence[Sequence[Change | Event]] = [
    *([event] for event in answer(*(TextDelta(MARKDOWN[at : at + 40]) for at in range(0, len(MARKDOWN), 40)))),
    answer(TextDelta("word " * 40)),
    answer(TextDelta("\n")),
    answer(TextDelta("\n\n- item one\n- item two 日本語\n   ```\n   code\n")),
    answer(TextDelta("```py\n" + "line = 1\n" * 30)),
    answer(TextDelta("x" * 100)),
    answer(ThinkingDelta("think about it " * 20), ThinkingDelta("and again\n" * 5)),
    a_call(1, "short"),
    a_call(2, "many\nlines\nof\noutput\nhere"),
    [running("c3", "run_command", {"command": "sleep"})],
    answer(Failed(ErrorCode.OVERLOADED, "busy")),
    [Retrying(error=Failed(ErrorCode.OVERLOADED, "busy"), model_call_index=0, attempt=2, delay_ms=500)],
]


class Watched:
    """A screen with a manual clock, and what was written to it since the last call."""

    def __init__(self, width: int = 60, footer: str = "") -> None:
        self.console = console_of(width)
        self.clock = Clock()
        lines = [[Segment(line)] for line in footer.split("\n")] if footer else []
        self.screen = LiveScreen(self.console, clock=self.clock, footer=lambda: lines)
        self._seen = 0

    def show(self, *items: Change | Event, after: float = 1.0) -> str:
        present(self.screen, *items)
        self.clock.now += after
        self.screen.tick()
        return self.new_output()

    def new_output(self) -> str:
        whole = written(self.console)
        new, self._seen = whole[self._seen :], len(whole)
        return CODES.sub("", new)


def entry(fact: Fact) -> Entry:
    stamped_fact = stamped(fact, id="m", timestamp=NOW) if isinstance(fact, Message) else fact
    return Entry(id="e", session_id="s", seq=1, timestamp=NOW, fact=stamped_fact)


# -- text


@pytest.mark.parametrize("width", [40, 60, 100])
def test_an_answer_is_printed_once(width: int) -> None:
    pieces = [TextDelta(MARKDOWN[at : at + 9]) for at in range(0, len(MARKDOWN), 9)]
    text = shown(answer(*pieces, Done("stop")), width=width)
    for words in ("A tour of the house", "one short item", "nested below it", "README.md", "def greet", "That is all"):
        assert text.count(words) >= 1
    final = shown(answer(TextDelta(MARKDOWN)), width=width)
    assert [line.rstrip() for line in final.split("\n") if "def greet" in line] == ["  def greet(name: str) -> str:"]
    code = '      return f"Hello {name}"  # said once'  # wrapped by the terminal, so that it can be copied as one line
    assert code in final
    assert max(len(line) for line in final.split("\n") if line != code) <= width


@settings(max_examples=25)
@given(st.lists(st.integers(1, len(MARKDOWN) - 1), max_size=6))
def test_cutting_the_deltas_differently_prints_the_same(cuts: list[int]) -> None:
    def printed(pieces: list[str]) -> str:
        console = console_of()
        screen = LiveScreen(console, clock=Clock())
        screen.suspend()  # no live area, only finished lines
        for event in answer(*map(TextDelta, pieces)):
            present(screen, event)
        screen.close()
        return written(console)

    places = sorted({0, len(MARKDOWN), *cuts})
    assert printed([MARKDOWN[a:b] for a, b in pairwise(places)]) == printed([MARKDOWN])


@settings(max_examples=60)
@given(st.data())
def test_the_live_area_leaves_no_trace(data: st.DataObject) -> None:
    """Compared with a screen that never shows it."""
    width, height = data.draw(st.sampled_from([(30, 6), (24, 3), (60, 20)]))
    steps = data.draw(st.lists(st.sampled_from(STEPS), max_size=25))
    moving, still = console_of(width, height), console_of(width, height)
    clock = Clock()
    screens = LiveScreen(moving, clock=clock), LiveScreen(still, clock=clock)
    for screen in screens:
        screen.suspend()
    screens[0].resume()
    for step in steps:
        for event in step:
            clock.now += data.draw(st.sampled_from([0.0, 0.05, 0.2]))
            screens[0].tick()
            for screen in screens:
                present(screen, event)
    ends = []
    for screen, console in zip(screens, (moving, still), strict=True):
        screen.close()
        terminal = Emulator(width, height)
        terminal.write(written(console))
        ends.append(terminal.lines())
    assert ends[0] == ends[1]


def test_only_the_unfinished_block_is_redrawn() -> None:
    watched = Watched()
    first = watched.show(*answer(TextDelta("First block.\n\nSecond ")))
    assert "First block." in first
    later = watched.show(*answer(TextDelta("block grows")))
    assert "First" not in later
    assert "Second block grows" in later


def test_long_code_is_printed_while_it_grows() -> None:
    watched = Watched()
    watched.show(*answer(TextDelta("```python\n")))
    for n in range(60):
        assert len(watched.show(*answer(TextDelta(f"line_{n} = {n}\n"))).split("\n")) < 45
    watched.screen.close()
    assert "line_59 = 59" in watched.new_output()


def test_html_tags_and_addresses_are_visible() -> None:
    text = shown(
        answer(TextDelta("A Vec<String> at [here](http://a.b/c) ![pic](p.png) <div>\n\n<p>\n\n[x]: http://d.e\n"))
    )
    for words in ("Vec<String>", "here (http://a.b/c)", "p.png", "<div>", "<p>", "http://d.e"):
        assert words in text


# -- thinking


def test_thinking_is_folded_into_one_line() -> None:
    watched = Watched()
    live = watched.show(*answer(ThinkingDelta("one\ntwo\nthree\nfour\nfive six")), after=4.0)
    assert "thinking  4 s" in live
    assert "four" in live
    assert "two" not in live
    ended = watched.show(*answer(TextDelta("Hi.\n\n")))
    assert "thought for 4 s (6 words)" in ended
    assert "five" not in ended
    assert watched.screen.last_thinking() == "one\ntwo\nthree\nfour\nfive six"


def test_thinking_can_be_printed_in_full() -> None:
    text = shown(answer(ThinkingDelta("one\ntwo\nthree\nfour\nfive"), TextDelta("Hi")), thinking=True)
    assert "one\ntwo\nthree\nfour\nfive\n\nHi" in text


def test_thinking_can_be_toggled() -> None:
    screen = LiveScreen(console_of())
    assert screen.last_thinking() is None
    assert screen.toggle_thinking() is True
    assert screen.toggle_thinking() is False


def test_thinking_without_text_is_not_shown() -> None:
    assert "thought" not in shown(answer(TextDelta("a"), ThinkingDelta(""), TextDelta("b"), ThinkingDelta("")))


# -- tool calls


def test_a_call_is_shown_while_it_is_written_and_run_and_afterwards() -> None:
    watched = Watched()
    watched.show(*answer(TextDelta("Let me look."), ToolCallStart("c1", "read_file")))
    assert 'read_file path="READ' in watched.show(*answer(ToolCallArgs("c1", '{"path": "READ')))
    watched.show(*answer(ToolCallArgs("c1", 'ME.md"}'), Done("tool_calls")))
    arguments = {"path": "README.md"}
    watched.show(stored("c1"), running("c1", "read_file", arguments))
    live = watched.show(CallProgressed("c1", "read_file", "half way", "reading", metadata={"done": 3}), after=5)
    assert "reading half way done=3" in live
    assert "6 s" in live
    end = watched.show(completed("c1", "read_file", arguments, "\n".join(map(str, range(120)))))
    assert '✓ read_file path="README.md"  0.1 s  120 lines\n  0\n  1\n  … 115 more lines (Ctrl-T)\n  117\n' in end


def test_parallel_calls_are_shown_together() -> None:
    watched = Watched()
    one, two = {"command": "one"}, {"command": "two"}
    live = watched.show(running("c1", "run_command", one), running("c2", "run_command", two))
    assert "one" in live
    assert "two" in live
    ended = watched.show(completed("c2", "run_command", two, "fine"))
    assert '✓ run_command command="two"  0.1 s\n  fine\n' in ended


def test_a_failed_call_shows_the_error() -> None:
    arguments = {"path": "nowhere"}
    text = shown([running("c1", "read_file", arguments), errored("c1", "read_file", arguments, "no such file")])
    assert '✗ read_file path="nowhere"\n  no such file\n' in text


def test_a_denied_call_was_not_run() -> None:
    asked = [*pending("c1", "run_command", {"command": "rm"}), CallAsked("c1", "run_command", REQUEST)]
    text = shown([*asked, errored("c1", "run_command", {"command": "rm"}, "the call was denied")])
    assert '✗ run_command command="rm"  not run\n  the call was denied\n' in text


def test_the_whitespace_of_arguments_is_shown() -> None:
    """An edit may change nothing else."""
    arguments = {"old": "\tdo  it", "new": "    do  it\n"}
    assert r'edit_file old="\tdo  it" new="    do  it\n"' in shown([completed("c1", "edit_file", arguments, "ok")])


def test_a_call_awaits_approval_until_it_is_decided() -> None:
    watched = Watched()
    live = watched.show(*pending("c1", "run_command", {"command": "rm"}), CallAsked("c1", "run_command", REQUEST))
    assert '? run_command command="rm"  awaiting approval' in live
    assert "awaiting" not in watched.show(
        CallDecided("c1", "run_command", ApprovalDecided(tool_call_id="c1", decision="approve"))
    )


def test_a_call_of_a_paused_run_still_awaits_approval() -> None:
    asked = [*pending("c1", "run_command", {"command": "rm"}), CallAsked("c1", "run_command", REQUEST)]
    text = shown([*asked, RunPaused((REQUEST,)), finished(AgentStatus.AWAITING_HUMAN)])
    assert text.rstrip().endswith('? run_command command="rm"  awaiting approval')
    assert "Paused: 1 tool call awaiting approval." in text


def test_a_call_in_a_truncated_answer_was_not_run() -> None:
    broken = answer(ToolCallStart("c1", "look"), ToolCallArgs("c1", '{"at": "th'), Failed(ErrorCode.STREAM_TRUNCATED))
    assert '✗ look at="th"  not run' in shown(broken)


def test_a_failed_command_shows_its_exit_code_and_its_end() -> None:
    output = "\n".join(f"line {number}" for number in range(50))
    text = shown([completed("c1", "run_command", {"command": "make"}, output, exit_code=2)])
    assert '✗ run_command command="make"  exit code 2  0.1 s  50 lines\n  line 0\n' in text
    assert text.rstrip().endswith("line 49")
    assert "✓ run_command  0.1 s\n  fine" in shown([completed("c1", "run_command", {}, "fine", exit_code=0)])
    assert "✓ edit_file  0.1 s  +3 -1\n" in shown([completed("c1", "edit_file", {}, "x", additions=3, deletions=1)])


def test_a_plan_is_a_list() -> None:
    steps = {"steps": [{"text": "look " * 20, "status": "done"}, {"text": "write", "status": "doing"}, {"text": "end"}]}
    text = shown([completed("c1", "update_plan", steps, "1 of 3")], width=40)
    assert text.startswith("✓ update_plan\n  ☑ look look")
    assert text.endswith("  ▶ write\n  ☐ end\n")
    assert max(map(len, text.splitlines())) <= 40
    assert "▶ write" in Watched().show(
        *answer(
            ToolCallStart("c1", "update_plan"), ToolCallArgs("c1", '{"steps": [{"text": "write", "status": "doing"}')
        )
    )


def test_the_calls_of_a_sub_agent_are_nested() -> None:
    watched = Watched()
    watched.show(running("c1", "helper", {}))
    inner = [SubagentChanged("c1", "helper", "helper", completed(f"i{n}", "look", {"at": n}, "seen")) for n in range(7)]
    deepest = completed("d", "dig", {}, "found", exit_code=1)
    live = watched.show(
        *inner,
        SubagentChanged("c1", "helper", "helper", running("i7", "search", {})),
        SubagentChanged("c1", "helper", "helper", SubagentChanged("i7", "search", "deeper", deepest)),
        SubagentChanged("c1", "helper", "helper", RunEnds(status="completed")),
    )
    assert "\n  … 2 earlier calls\n  ✓ look at=2" in live
    assert re.search(r"\n  . search  1 s\n    ✗ dig  exit code 1", live)
    end = watched.show(completed("c1", "helper", {}, "The answer."))
    assert "✓ helper  0.1 s\n  … 2 earlier calls\n  ✓ look at=2  0.1 s\n" in end
    assert end.rstrip().endswith("The answer.")


def test_the_footer_stays_below_the_answer() -> None:
    watched = Watched(footer="typed text\nCtrl-C to stop")
    assert watched.show(*answer(TextDelta("Some words"))).rstrip().endswith("Some words\n\ntyped text\nCtrl-C to stop")
    assert watched.show(*answer(TextDelta(" more\n\n"))).rstrip().endswith("Ctrl-C to stop")
    watched.screen.close()
    assert "stop" not in watched.new_output()


def test_a_call_running_at_the_end_was_stopped() -> None:
    assert "✗ look  stopped" in shown([running("c1", "look", {})])


def test_an_output_is_cut_to_the_window() -> None:
    text = shown([completed("c1", "look", {"at": "a" * 100}, "b" * 500)], width=40)
    lines = text.strip().split("\n")
    assert max(len(line) for line in lines) <= 40
    assert [line[-1] for line in lines] == ["s", "…"]


# -- notices


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (
            Retrying(error=Failed(ErrorCode.RATE_LIMITED, "slow down."), model_call_index=0, attempt=2, delay_ms=2000),
            "rate_limited: slow down; retrying in 2 s (attempt 2)",
        ),
        (
            ModelSwitched(
                model=ModelRef("openai", "gpt-5"),
                previous=None,
                report=LossReport(
                    (Loss(where="m", what="thinking", why="w"), Loss(where="n", what="thinking", why="w"))
                ),
                reason="fallback",
            ),
            "Switched to openai:gpt-5 because the previous model failed. Not sent: thinking (w), 2 times.",
        ),
        (
            ModelSwitched(
                model=ModelRef("openai", "gpt-5"),
                previous=None,
                report=LossReport(
                    (Loss(where="m", what="text", why="w", action="added"), Loss(where="n", what="thinking", why="v"))
                ),
                reason="chosen",
            ),
            "Switched to openai:gpt-5. Not sent: thinking (v). Added: text (w).",
        ),
        (
            Compacted(entry(CompactionSummary(summary="s", first_kept_entry_id="e")), 120_000, 8_000),
            "Compacted 120,000 to 8,000 tokens: older turns are now sent as a summary.",
        ),
        (RunPaused((REQUEST,)), "Paused: 1 tool call awaiting approval."),
        (finished(AgentStatus.FAILED, error=Failed(ErrorCode.OVERLOADED, "busy")), "overloaded: busy"),
        (finished(AgentStatus.ABORTED), "Stopped. The partial answer is kept."),
    ],
)
def test_events_of_a_run_are_shown_as_notices(event: Event, words: str) -> None:
    console = plain_console()
    plain = PlainScreen(console)
    plain.show(event)
    assert words in written(console)
    assert words in shown([*answer(TextDelta("before")), event], width=200)


def test_a_completed_run_needs_no_notice() -> None:
    assert shown([finished(AgentStatus.COMPLETED, message=assistant("a"))]) == ""


def test_waiting_for_a_slow_model_is_shown() -> None:
    watched = Watched()
    asked = StatusChanged(AgentStatus.MODEL_RUNNING, AgentStatus.PREPARING)
    assert "waiting for the model  3 s" in watched.show(asked, after=3)
    assert "waiting" not in watched.show(*answer(TextDelta("Here")))


# -- the live area


def test_what_finishes_during_a_question_is_printed_afterwards() -> None:
    watched = Watched()
    watched.show(*answer(TextDelta("Text ")), running("c1", "look", {}))
    watched.screen.suspend()
    watched.new_output()
    assert watched.show(completed("c1", "look", {}, "seen"), *answer(TextDelta("more\n\n"))) == ""
    watched.screen.resume()
    assert "✓ look" in watched.new_output()


def test_closing_restores_the_cursor() -> None:
    console = console_of()
    screen = LiveScreen(console)
    for event in answer(TextDelta("Half a sen")):
        present(screen, event)
    screen.close()
    text = written(console)
    assert text.endswith("\x1b[?25h")
    assert "Half a sen\n" in text
    screen.tick()
    screen.close()
    assert written(console) == text


def test_the_area_is_not_redrawn_for_every_delta() -> None:
    console = console_of()
    screen = LiveScreen(console, clock=Clock())
    for event in answer(*(TextDelta("word ") for _ in range(500))):
        present(screen, event)
    assert len(written(console)) < 100


def test_the_window_can_be_resized() -> None:
    watched = Watched(80)
    watched.show(*answer(TextDelta("word " * 60)))
    for width, height in ((20, 5), (1, 1), (200, 50)):
        watched.console.width, watched.console.height = width, height
        watched.show(*answer(TextDelta("more ")), running("c1", "look", {"at": "here"}))
    watched.show(completed("c1", "look", {"at": "here"}, "seen"))
    watched.screen.close()
    text = CODES.sub("", written(watched.console))
    assert '✓ look at="here"' in text
    assert text.endswith("  seen\n")


# -- safety


@settings(max_examples=40)
@given(st.text(alphabet=st.sampled_from("ab \n`*_#>|-[]()&;x1b27\x1b\x07\x9b\r\t\u202e\ud800\x00é"), max_size=80))
def test_only_our_own_sequences_reach_the_terminal(text: str) -> None:
    console = console_of()
    screen = LiveScreen(console, thinking=True)
    hostile: list[Delta] = [ThinkingDelta(text), TextDelta(text), TextDelta(f"\n\n```{text}\n{text}"), Done("stop")]
    failure = Failed(ErrorCode.SERVER_ERROR, text)
    for event in [
        *answer(*hostile),
        running("c1", text, {text: text}, title=text),
        CallProgressed("c1", text, text, text, metadata={text: [text]}),
        completed("c1", text, {text: text}, text or "x"),
        running("c2", text, {}),
        errored("c2", text, {}, text or "x"),
        Retrying(error=failure, model_call_index=0, attempt=1, delay_ms=1),
        finished(AgentStatus.FAILED, error=failure),
    ]:
        present(screen, event)
        screen.tick()
    left = OURS.sub("", written(console))
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e\ud800]", left)


async def test_a_hostile_answer_is_reduced_to_its_text() -> None:
    console = console_of()
    await play("hostile", console)
    left = OURS.sub("", written(console))
    assert "\x1b" not in left
    assert "aGk" not in left
    assert "\u202e" not in left
    assert "one  two  three" in left
    assert "code" in left


@pytest.mark.parametrize("case", sorted(CASES))
async def test_whole_runs_are_shown(case: str) -> None:
    console = console_of(40)
    await play(case, console, thinking=True)
    assert LAST_WORDS[case] in OURS.sub("", written(console))


def test_every_event_is_accepted() -> None:
    odd: list[Change | Event] = [
        Snapshot(assistant("x")),
        StatusChanged(AgentStatus.PREPARING, AgentStatus.IDLE),
        *answer(ToolCallArgs("nobody", "{}"), ToolCallStart("c", ""), ToolCallArgs("c", "[1,")),
        completed("new", "", {"a": float("inf"), "b": None, "c": {"d": ["\ud800"]}}, "x"),
        CallAsked("c1", "run_command", REQUEST),
    ]
    assert "✓" in shown(odd)


# -- other terminals


def test_no_color_is_respected() -> None:
    console = console_of(_environ={"TERM": "xterm-256color", "NO_COLOR": "1"})
    screen = LiveScreen(console)
    for event in [*answer(TextDelta(MARKDOWN)), completed("c", "look", {}, "seen")]:
        present(screen, event)
    screen.close()
    numbers = {int(n) for codes in re.findall(r"\x1b\[([0-9;]+)m", written(console)) for n in codes.split(";")}
    assert numbers <= {0, 1, 2, 3, 4}  # bold, dim, italic, underlined


def test_the_linux_console_gets_ascii_symbols(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "linux")
    text = shown([*answer(TextDelta("- item\n\n> quote\n")), completed("c", "look", {}, "seen")])
    assert text.isascii()
    assert "+ look" in text


def test_the_screen_depends_on_the_console() -> None:
    assert isinstance(new_screen(console_of()), LiveScreen)
    assert isinstance(new_screen(plain_console()), PlainScreen)
    assert isinstance(new_screen(console_of(_environ={"TERM": "dumb"})), PlainScreen)


# -- from events


def test_a_call_that_an_earlier_process_made_is_shown_when_it_ends() -> None:
    call = ToolCall("c1", "look", {"at": "sky"})
    meta = Meta(model_call_index=0)
    earlier = [entry(RunStarted()), entry(Message("assistant", (call,), meta=meta))]
    console = console_of()
    screen = LiveScreen(console, earlier=earlier)
    screen.show(EntryAppended(entry(tool_message(ToolResult("c1", "blue")))))
    screen.close()
    assert '✓ look at="sky"\n  blue\n' in CODES.sub("", written(console))


def test_a_call_that_awaits_approval_is_shown_below_that_of_its_sub_agent_only() -> None:
    inner = "c1/i1"
    question = ApprovalRequired(tool_call_id=inner, tool_name="delete", arguments={})
    changes = [
        running("c1", "helper", {}),
        *(SubagentChanged("c1", "helper", "helper", change) for change in pending("i1", "delete", {})),
        SubagentChanged("c1", "helper", "helper", CallAsked("i1", "delete", question)),
        CallStarted(inner, "delete", is_nested=True),
        CallAsked(inner, "delete", question),
        running(inner, "delete", {}),
    ]
    watched = Watched()
    assert watched.show(*changes).count("delete") == 1
    nested = CallEnded(inner, "delete", result=ToolResult(inner, "ok"), arguments={}, is_nested=True)
    assert "delete  awaiting" in watched.show(nested, after=60)
    assert "✗ helper  stopped" in shown(changes)
