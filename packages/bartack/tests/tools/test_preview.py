"""What runs is what was shown: the preview of a question is made again before the call acts."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from bartack import ErrorCode, ToolCall
from bartack.nouns import wire
from bartack.nouns.entries import ApprovalDecided, ApprovalRequired, ToolStarted
from bartack.session.decisions import Decision, question_digest
from bartack.tools import LocalRuntime, ToolContext, file_tools, tool
from bartack.tools.file_changes import change_in
from bartack.tools.preview import PreviewChanged
from tests.tools.rounds import Bench, call


class Deciding:
    """Takes the answers in order; each may do something before it decides."""

    def __init__(self, *answers: Any) -> None:
        self._answers = list(answers)
        self.asked: list[ApprovalRequired] = []

    async def decide(self, request: ApprovalRequired) -> Decision | None:
        self.asked.append(request)
        answer = self._answers.pop(0)
        decision: Decision | None = answer() if callable(answer) else answer
        return decision


YES = Decision("approve")


@pytest.fixture
async def runtime(tmp_path: Path) -> AsyncIterator[LocalRuntime]:
    opened = LocalRuntime(tmp_path)
    await opened.connect()
    yield opened
    await opened.close()


def approving_after(file: Path, text: str | None) -> Any:
    def answer() -> Decision:
        file.unlink(missing_ok=True) if text is None else file.write_text(text)
        return YES

    return answer


def write(path: str = "a.txt", text: str = "mine\n") -> ToolCall:
    return call("write_file", path=path, text=text)


async def test_the_question_has_the_change_and_the_decision_names_it(runtime: LocalRuntime, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n")
    approver = Deciding(YES)
    bench = Bench(*file_tools(), runtime=runtime, approver=approver)
    await bench.run(write())
    [question] = bench.log.of(ApprovalRequired)
    change = change_in(question)
    assert change is not None
    assert [(row.kind, row.text) for row in change.diff] == [("-", "one"), ("+", "mine")]
    assert bench.log.of(ApprovalDecided)[0].question_digest == question_digest(question)
    assert wire.load(ApprovalRequired, wire.dump(question)) == question
    assert (tmp_path / "a.txt").read_text() == "mine\n"


@pytest.mark.parametrize("changed", ["saved meanwhile\n", "", None])
@pytest.mark.parametrize("before", ["one\n", None])
async def test_a_file_that_changes_while_the_question_is_open_is_asked_about_again(
    runtime: LocalRuntime, tmp_path: Path, before: str | None, changed: str | None
) -> None:
    if before == changed:
        return
    file = tmp_path / "a.txt"
    if before is not None:
        file.write_text(before)
    approver = Deciding(approving_after(file, changed), Decision("deny"))
    bench = Bench(*file_tools(), runtime=runtime, approver=approver)
    outcome = await bench.run(write())
    assert [result.error_code for result in outcome.results] == [ErrorCode.TOOL_DENIED]
    assert (file.read_text() if file.exists() else None) == changed
    first, second = approver.asked
    assert question_digest(first) != question_digest(second)
    assert bench.log.of(ToolStarted) == []


async def test_an_edit_is_not_applied_to_places_that_were_not_shown(runtime: LocalRuntime, tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("x\n")
    approver = Deciding(approving_after(file, "x\nx\nx\nx\n"), YES)
    bench = Bench(*file_tools(), runtime=runtime, approver=approver)
    await bench.run(call("edit_file", path="a.txt", old="x", new="y", everywhere=True))
    shown = [change_in(question) for question in approver.asked]
    assert [sum(row.kind == "+" for row in change.diff) for change in shown if change is not None] == [1, 4]
    assert file.read_text() == "y\ny\ny\ny\n"


async def test_changed_arguments_are_bound_to_the_file_that_was_shown(runtime: LocalRuntime, tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("one\n")

    def change() -> Decision:
        if len(approver.asked) == 1:
            file.write_text("two\n")
        return Decision("modify_args", arguments={"path": "a.txt", "text": "edited\n"})

    approver = Deciding(change, change)
    await Bench(*file_tools(), runtime=runtime, approver=approver).run(write())
    assert len(approver.asked) == 2
    assert file.read_text() == "edited\n"


@pytest.mark.parametrize(
    ("impossible", "text"),
    [
        (call("edit_file", path="a.txt", old="zwei", new="2"), "was not found"),
        (call("edit_file", path="none.txt", old="a", new="b"), "No such file"),
        (call("write_file", path="../out.txt", text="x"), "is outside"),
        (call("run_command", command=" \n"), "is empty"),
        (call("run_command", command="ls", directory="none"), "No such file"),
        (call("write_file", path=3), "Invalid arguments"),
    ],
)
async def test_an_impossible_call_is_answered_without_asking(
    runtime: LocalRuntime, tmp_path: Path, impossible: ToolCall, text: str
) -> None:
    (tmp_path / "a.txt").write_text("one\n")
    bench = Bench(*file_tools(), runtime=runtime)
    outcome = await bench.run(impossible)
    assert text in str(outcome.results[0].content)
    assert bench.log.of(ApprovalRequired) == []


async def test_a_later_call_is_asked_about_when_the_earlier_one_has_ended(
    runtime: LocalRuntime, tmp_path: Path
) -> None:
    approver = Deciding(YES, YES)
    bench = Bench(*file_tools(), runtime=runtime, approver=approver)
    edit = call("edit_file", "c2", path="a.txt", old="mine", new="yours")
    await bench.run(write(), edit)
    assert (tmp_path / "a.txt").read_text() == "yours\n"
    assert len(approver.asked) == 2
    bench = Bench(*file_tools(), runtime=runtime)
    assert (await bench.run(write(), edit)).waiting == ("c1", "c2")
    assert len(bench.log.of(ApprovalRequired)) == 1


async def test_a_command_is_shown_with_its_directory(runtime: LocalRuntime, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    approver = Deciding(YES)
    bench = Bench(*file_tools(), runtime=runtime, approver=approver)
    outcome = await bench.run(call("run_command", command="pwd", directory="sub"))
    assert approver.asked[0].preview == {
        "kind": "command",
        "command": "pwd",
        "directory": str(tmp_path / "sub"),
        "runtime": {"name": "local", **await runtime.get_init_data()},
    }
    assert outcome.results[0].content == f"{tmp_path / 'sub'}\n"


class OtherSandbox(LocalRuntime):
    """Describes itself as confined until it no longer is."""

    is_confined = True

    async def get_init_data(self) -> dict[str, Any]:
        return {**await super().get_init_data(), "sandbox": "no network" if self.is_confined else "none"}


async def test_a_command_that_was_approved_in_one_sandbox_is_asked_about_in_another(tmp_path: Path) -> None:
    runtime = OtherSandbox(tmp_path)
    await runtime.connect()

    class Weakens(Deciding):
        async def decide(self, request: ApprovalRequired) -> Decision | None:
            runtime.is_confined = False  # after the question was made
            return await super().decide(request)

    approver = Weakens(YES, Decision("deny"))
    bench = Bench(*file_tools(), runtime=runtime, approver=approver)
    outcome = await bench.run(call("run_command", command="touch a"))
    sandboxes = [(question.preview or {})["runtime"]["sandbox"] for question in approver.asked]
    assert sandboxes == ["no network", "none"]
    assert (outcome.results[0].is_error, (tmp_path / "a").exists()) == (True, False)
    await runtime.close()


# -- tools of users

balances = {"ann": 1}


async def balance(arguments: dict[str, Any], ctx: ToolContext) -> dict[str, Any]:
    await asyncio.sleep(0)
    return {"balance": balances[arguments["to"]], "tool": ctx.tool_name}


def text_of(arguments: dict[str, Any]) -> str:
    return f"{balances['ann']} for {arguments['to']}"


@pytest.mark.parametrize("preview", [balance, text_of, lambda arguments: balances["ann"] and {"b": balances["ann"]}])
async def test_a_tool_of_a_user_declares_a_preview(preview: Any) -> None:
    previews: list[Any] = []

    @tool(requires_approval=True, preview=preview)
    async def pay(to: str, ctx: ToolContext) -> str:
        """Pay."""
        previews.append(ctx.preview)
        return "paid"

    def change() -> Decision:
        balances["ann"] += 1
        return YES

    approver = Deciding(change, YES)
    outcome = await Bench(pay, approver=approver).run(call("pay", to="ann"))
    assert outcome.results[0].content == "paid"
    assert approver.asked[0].preview != approver.asked[1].preview
    assert previews == [approver.asked[1].preview]


@pytest.mark.parametrize(
    ("preview", "text"),
    [
        (lambda arguments: 3, "must be a JSON object or text"),
        (lambda arguments: 1 / 0, "The preview failed: ZeroDivisionError"),
    ],
)
async def test_a_call_without_a_valid_preview_does_not_run(preview: Any, text: str) -> None:
    bench = Bench(tool(requires_approval=True, preview=preview)(text_tool), approver=Deciding(YES))
    outcome = await bench.run(call("text_tool", to="ann"))
    assert text in str(outcome.results[0].content)
    assert bench.log.of(ToolStarted) == []


async def text_tool(to: str) -> str:
    """Answer."""
    return to


async def test_a_tool_that_finds_a_difference_while_it_acts_is_asked_about_again() -> None:
    state = {"version": 1}

    @tool(requires_approval=True, preview=lambda arguments: dict(state))
    async def act(ctx: ToolContext) -> str:
        """Act."""
        if ctx.preview == {"version": 1}:
            state["version"] = 2
            raise PreviewChanged("changed")
        return "done"

    approver = Deciding(YES, YES)
    bench = Bench(act, approver=approver)
    outcome = await bench.run(call("act"))
    assert outcome.results[0].content == "done"
    assert [request.preview for request in approver.asked] == [{"version": 1}, {"version": 2}]


@pytest.mark.parametrize("needs_approval", [True, False])
async def test_a_tool_that_never_agrees_with_its_own_preview_fails(needs_approval: bool) -> None:
    @tool(requires_approval=needs_approval, preview=lambda arguments: {"version": 1})
    async def act() -> str:
        """Act."""
        raise PreviewChanged("always changed")

    outcome = await Bench(act, approver=Deciding(YES)).run(call("act"))
    assert "always changed" in str(outcome.results[0].content)
