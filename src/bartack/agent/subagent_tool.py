"""`SubagentTool`: a tool that runs another agent, as far as the outer run is concerned with it."""

from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass

from bartack.nouns.errors import BartackError
from bartack.session.run_state import OpenCall
from bartack.store.session_store import SessionStore
from bartack.tools import ToolDefinition, ToolRegistry

__all__ = ["SubagentTool", "end_inner_runs"]


@dataclass(frozen=True, kw_only=True)
class SubagentTool(ToolDefinition):
    """A tool that runs another agent."""

    end: Callable[[str, SessionStore], Awaitable[None]]  # its run in a session; the store is that of the outer run


async def end_inner_runs(calls: Iterable[OpenCall], registry: ToolRegistry, store: SessionStore) -> None:
    """End the paused runs of sub-agents whose calls have been closed: nothing would resume them.

    What cannot be ended, because its session is gone or in use, is left as it is.
    """
    for one in calls:
        tool = registry.get(one.call.tool_name)
        if one.inner_session is not None and isinstance(tool, SubagentTool):
            with suppress(BartackError):
                await tool.end(one.inner_session, store)
