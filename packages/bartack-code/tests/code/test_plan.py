"""Plans, and what fills the context."""

from bartack.nouns.config import ModelConfig
from bartack.nouns.messages import assistant, system, tool_message, user
from bartack.nouns.parts import FileRef, Thinking, ToolCall, ToolResult
from bartack.nouns.requests import ModelRequest
from bartack_code.chat.slash_output import context_rows
from bartack_code.workspace.plan import PlanStep, steps_of, update_plan


async def test_a_plan_counts_its_steps() -> None:
    assert await update_plan([PlanStep("a", "done"), PlanStep("b", "doing"), PlanStep("c")]) == "1 of 3 steps are done."
    assert update_plan.name == "update_plan"


def test_the_steps_of_a_call_may_be_incomplete() -> None:
    arguments = {"steps": [{"text": "a", "status": "doing"}, {"text": "b"}, {"tex": 3}, "c"]}
    assert steps_of(arguments) == [PlanStep("a", "doing"), PlanStep("b")]
    assert steps_of({"steps": "x"}) == []


def test_the_context_is_shown_by_kind_and_scaled_to_the_reported_count() -> None:
    messages = (
        system("Be brief."),
        user("Hello " * 50, FileRef("a.txt", data=b"x", mime_type="text/plain")),
        assistant(Thinking("hm"), "Hi.", ToolCall("c", "look", {})),
        tool_message(ToolResult("c", "seen " * 100)),
    )
    request = ModelRequest(messages, config=ModelConfig("m"), provider="p")
    names = [row.name for row in context_rows(request)]
    assert names == [
        "instructions", "your messages", "attachments", "answers", "thinking", "tool calls", "tool results",
    ]  # fmt: skip
    assert abs(sum(row.tokens for row in context_rows(request, 10_000)) - 10_000) < 10
