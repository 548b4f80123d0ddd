"""Stored sessions as an MCP server, so that other agents can use their own history.

The other program, and whatever its model reads, sees only the sessions in the scope that the user has chosen: one
session, those of one project, or none but those that it starts itself.

Three tools: search, read, and continue, which runs the configured agent. If a tool call of that agent needs approval,
the user of the other program is asked. Programs that use a protocol version before 2026-07-28 are asked during the
call; later ones get the question as the result and call again with the answer, so the run pauses and is resumed.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mcp import types
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types.version import MODERN_PROTOCOL_VERSIONS

from bartack.agent import Agent, RunResult
from bartack.app.agent_setup import new_agent, resolve_setup
from bartack.app.errors import error_text
from bartack.app.sessions import (
    SessionFilter,
    configured_store,
    ensure_session,
    find_session,
    listed_sessions,
    opened_store,
)
from bartack.app.transcript import markdown_transcript
from bartack.display.question_text import question_text
from bartack.nouns.entries import ApprovalRequired
from bartack.nouns.errors import BartackError, NotFound
from bartack.nouns.tables import AgentStatus
from bartack.session.decisions import approval_id, read_approval_id
from bartack.store import SessionStore
from bartack.store.errors import session_not_found_error
from bartack.store.index import Where
from bartack.store.ranking import SearchFilter, parse_search_time, search_sessions
from bartack.store.requests import pending_approvals

_MAX_TEXT = 100_000  # characters of a session; about 25,000 tokens
_PROGRAM = "bartack mcp serve"
_NO_FORM: dict[str, Any] = {"type": "object", "properties": {}}
_CANNOT_ASK = "the program that continues this session cannot ask its user"
_INSTRUCTIONS = "Past conversations of this user with agents. Search them before asking the user to repeat something."
_READS = types.ToolAnnotations(read_only_hint=True, open_world_hint=False)
_WRITES = types.ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=True)


async def serve_sessions(
    *, model: str | None, store: str | None, session: str | None, project: Path | None, files: bool, read_only: bool
) -> None:
    """Serve over stdin and stdout until stdin is closed. Raises `BartackError` if the store or model is unusable, or
    the session does not exist."""
    if read_only:
        async with opened_store(configured_store(store), for_reading=True) as opened:
            await _server(_Sessions(opened, await _scope(opened, session, project), None)).run_stdio_async()
        return
    setup = resolve_setup(model=model, tools=(), files=files, instructions=None, store=store)
    async with opened_store(setup.address) as opened, new_agent(setup, opened, approver=None) as agent:
        await _server(_Sessions(opened, await _scope(opened, session, project), agent)).run_stdio_async()


class _Scope(SessionFilter):
    """The sessions that the other program may see: these, and those of the project."""

    def __init__(self, store: SessionStore, session_ids: set[str], project: Path | None) -> None:
        super().__init__(store, None, project)
        self.session_ids = session_ids
        self._has_project = project is not None

    async def accepts(self, session_id: str) -> bool:
        return session_id in self.session_ids or (self._has_project and await super().accepts(session_id))

    async def check(self, session_id: str) -> None:
        """`NotFound` for a session outside, whether it exists or not."""
        if not await self.accepts(session_id):
            raise session_not_found_error(session_id)


async def _scope(store: SessionStore, session: str | None, project: Path | None) -> _Scope:
    return _Scope(store, set() if session is None else {await find_session(store, session)}, project)


def _server(sessions: "_Sessions") -> MCPServer:
    server = MCPServer("bartack", title="Bartack sessions", instructions=_INSTRUCTIONS, log_level="ERROR")
    server.tool(annotations=_READS)(sessions.search_sessions)
    server.tool(annotations=_READS)(sessions.read_session)
    if sessions.agent is not None:
        server.tool(annotations=_WRITES)(sessions.continue_session)
    return server


class _Sessions:
    """The tools. Their docstrings and parameters are what clients see."""

    def __init__(self, store: SessionStore, scope: _Scope, agent: Agent | None) -> None:
        self._store = store
        self._scope = scope
        self.agent = agent

    async def search_sessions(
        self,
        words: str = "",
        limit: int = 20,
        *,
        agent: str | None = None,
        project: str | None = None,
        model: str | None = None,
        tool: str | None = None,
        since: str | None = None,
        until: str | None = None,
        errors: bool = False,
        where: Where | None = None,
    ) -> dict[str, Any]:
        """Find stored sessions by words that occur in them, the best matches first. Terms such as snake_case or
        src/main.py are found as they are written, "two words" in double quotes in a row, and begin* by its beginning.
        Restrict the search to sessions of an agent, in a project (an absolute directory) or with a model, to what
        happened from since until before until (ISO 8601 times), to calls of a tool and their results, to errors, or
        to words in texts, results, calls or thinking.
        Without words, list the latest sessions of the agent and the project."""
        limit = max(1, min(limit, 100))
        try:
            by_header = SessionFilter(self._store, agent, None if project is None else Path(project))

            async def accepts(session_id: str) -> bool:
                return await self._scope.accepts(session_id) and await by_header.accepts(session_id)

            if words.strip():
                chosen = SearchFilter(
                    accepts,
                    model=model,
                    tool=tool,
                    since=parse_search_time(since),
                    until=parse_search_time(until),
                    errors_only=errors,
                    where=where,
                )
                sessions = await search_sessions(self._store, words, limit, chosen=chosen)
                return {
                    "hits": [
                        {"session": hit.session_id, "entry": hit.seq, "text": hit.snippet, "title": session.title}
                        for session in sessions
                        for hit in session.hits
                    ]
                }
            page = await listed_sessions(self._store, accepts, limit, None, None)
        except BartackError as error:
            raise ToolError(error_text(error)) from None
        infos = [{"session": info.id, "title": info.title, "updated": info.updated.isoformat()} for info in page.items]
        return {"sessions": infos}

    async def read_session(self, session: str) -> str:
        """Read a stored session as Markdown. Of a long one, the end is returned."""
        try:
            await self._scope.check(session)
            text = markdown_transcript(await self._store.load(session))
        except BartackError as error:
            raise ToolError(error_text(error)) from None
        omitted = len(text) - _MAX_TEXT
        return text if omitted <= 0 else f"[... {omitted:,} characters omitted ...]\n{text[-_MAX_TEXT:]}"

    async def continue_session(self, prompt: str, ctx: Context, session: str | None = None) -> Any:
        """Send a prompt to the agent of a stored session and return its answer. Without a session, start a new one."""
        assert self.agent is not None
        try:
            if ctx.request_state is not None:
                session = ctx.request_state
                await self._scope.check(session)
                await self._decide(session, ctx.input_responses or {})
                result = await self.agent.resume(session)
            else:
                session = await self._existing(session, prompt)
                result = await self.agent.run(prompt, session=session)
            while result.status is AgentStatus.AWAITING_HUMAN:
                if _is_modern(ctx) and _can_ask(ctx):
                    requests: types.InputRequests = {
                        approval_id(approval): _question(approval) for approval in result.approvals
                    }
                    return types.InputRequiredResult(input_requests=requests, request_state=session)
                await self._decide(
                    session, {approval_id(approval): await _asked(ctx, approval) for approval in result.approvals}
                )
                result = await self.agent.resume(session)
        except BartackError as error:
            raise ToolError(error_text(error)) from None
        return {"session": session, "answer": _answer(result)}

    async def _existing(self, session: str | None, prompt: str) -> str:
        if session is not None:
            await self._scope.check(session)
            await self._store.tail_of(session)  # raises `NotFound`: a name that is mistyped starts nothing
            return session
        new_id = await ensure_session(self._store, None, prompt=prompt, program=_PROGRAM)
        self._scope.session_ids.add(new_id)
        return new_id

    async def _decide(self, session: str, answers: Mapping[str, Any]) -> None:
        """Store what the user decided; a question that has no answer is denied. An answer to a question that has been
        asked again since, because the call would do something else, counts for nothing."""
        assert self.agent is not None
        questions = {question.tool_call_id: question for question in await pending_approvals(self._store, session)}
        for key, answer in answers.items():
            call_id, digest = read_approval_id(key)
            if call_id in questions and approval_id(questions[call_id]) != key:
                continue
            action = getattr(answer, "action", "cancel")
            try:
                if action == "accept":
                    await self.agent.approve(session, call_id, decided_by=_PROGRAM, question_digest=digest)
                else:
                    reason = _CANNOT_ASK if answer is None else f"the user's answer was {action!r}"
                    await self.agent.deny(session, call_id, reason=reason, decided_by=_PROGRAM, question_digest=digest)
            except NotFound:
                raise ToolError(f"Call {call_id!r} is not awaiting approval.") from None


def _answer(result: RunResult[Any]) -> str:
    if result.status is AgentStatus.COMPLETED:
        return str(result.output)
    raise ToolError(f"The run ended with status {result.status}: {result.error or result.reason}.")


def _can_ask(ctx: Context) -> bool:
    capabilities = ctx.client_capabilities
    return capabilities is not None and capabilities.elicitation is not None


def _is_modern(ctx: Context) -> bool:
    return ctx.request_context.session.protocol_version in MODERN_PROTOCOL_VERSIONS


async def _asked(ctx: Context, request: ApprovalRequired) -> types.ElicitResult | None:
    """The user's answer; None if the program cannot ask."""
    if not _can_ask(ctx):
        return None
    return await ctx.request_context.session.elicit_form(
        question_text(request), _NO_FORM, related_request_id=ctx.request_context.request_id
    )


def _question(request: ApprovalRequired) -> types.ElicitRequest:
    return types.ElicitRequest(
        params=types.ElicitRequestFormParams(message=question_text(request), requested_schema=_NO_FORM)
    )
