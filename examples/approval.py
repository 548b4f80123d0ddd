"""Require approval for a tool call: during the run, or later from another process."""

import asyncio

from bartack import ToolCall, assistant
from bartack.agent import Agent, ApprovalRequested, LiveApprover
from bartack.models import ScriptedModel
from bartack.store import MemoryStore
from bartack.tools import tool


@tool(requires_approval=lambda arguments: arguments["amount"] > 100)
async def transfer(amount: int) -> str:
    """Transfer money."""
    return f"moved {amount}"


def model() -> ScriptedModel:
    """A model that requests a large transfer."""
    return ScriptedModel([assistant(ToolCall("1", "transfer", {"amount": 5000})), "Done."])


async def decide_during_the_run() -> None:
    """Approve with a smaller amount while the run is active."""
    agent = Agent(model(), tools=[transfer], approver=LiveApprover())
    async with agent.stream("Pay the bill") as run:
        async for event in run:
            if isinstance(event, ApprovalRequested):
                print(f"approval required: {event.request.tool_name} {event.request.arguments}")
                run.approve(event.request.tool_call_id, arguments={"amount": 50})
    print([result.content for message in run.result.messages for result in message.tool_results])


async def decide_later() -> None:
    """Without an approver the run pauses. Record a decision and resume it."""
    store = MemoryStore()
    agent = Agent(model(), tools=[transfer], store=store)
    result = await agent.run("Pay the bill", session="bill")
    print(f"{result.status}: {[request.tool_name for request in result.approvals]}")
    await agent.deny("bill", "1", reason="not before Monday", decided_by="ann")
    result = await agent.resume("bill")
    print([part.content for message in result.messages for part in message.tool_results], result.output)


async def main() -> None:
    await decide_during_the_run()
    await decide_later()


if __name__ == "__main__":
    asyncio.run(main())
