"""A tool that needs a human's word: while the program runs, and after it has ended."""

import asyncio

from bartack import ToolCall, assistant
from bartack.agent import Agent, ApprovalRequested, LiveApprover
from bartack.models import ScriptedModel
from bartack.store import MemoryStore
from bartack.tools import tool


@tool(requires_approval=lambda arguments: arguments["amount"] > 100)
async def transfer(amount: int) -> str:
    """Moves money."""
    return f"moved {amount}"


def model() -> ScriptedModel:
    """Wants to move much."""
    return ScriptedModel([assistant(ToolCall("1", "transfer", {"amount": 5000})), "Done."])


async def while_it_runs() -> None:
    """Somebody watches and decides: less."""
    agent = Agent(model(), tools=[transfer], approver=LiveApprover())
    async with agent.stream("Pay the bill") as run:
        async for event in run:
            if isinstance(event, ApprovalRequested):
                print(f"may it run? {event.request.tool_name} {event.request.arguments}")
                run.approve(event.request.tool_call_id, arguments={"amount": 50})
    print([result.content for message in run.result.messages for result in message.tool_results])


async def another_day() -> None:
    """Nobody is there: the run pauses, and goes on when somebody has decided."""
    store = MemoryStore()
    agent = Agent(model(), tools=[transfer], store=store)
    result = await agent.run("Pay the bill", session="bill")
    print(f"{result.status}: {[request.tool_name for request in result.approvals]}")
    await agent.deny("bill", "1", reason="not before Monday", decided_by="ann")
    result = await agent.resume("bill")
    print([part.content for message in result.messages for part in message.tool_results], result.output)


async def main() -> None:
    """Both."""
    await while_it_runs()
    await another_day()


if __name__ == "__main__":
    asyncio.run(main())
