"""`EditorAgent`: an agent in an editor that speaks the Agent Client Protocol.

A session of the editor is a stored session, so it can be continued in the terminal or the browser, and the other way
round. Each has an agent of its own for its directory, with the MCP servers that the editor names. Calls that need
approval are put to the user of the editor.
"""

import asyncio
import os
import sys
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from acp import PROTOCOL_VERSION, Client, RequestError
from acp import schema as wire
from acp.core import AgentSideConnection
from acp.stdio import stdio_streams

from bartack.agent import Agent, Run
from bartack.agent.tool_calls import with_results
from bartack.app.editor_runtime import EditorRuntime
from bartack.nouns.entries import ApprovalRequired, Session, SessionHeader
from bartack.nouns.errors import BartackError, NotFound
from bartack.nouns.messages import user
from bartack.nouns.parts import ContentPart, FileRef, Image, Text
from bartack.protocols.acp import SessionUpdates, Update, call_update, replayed
from bartack.session.redaction import visible
from bartack.store import SessionStore
from bartack.store.new_session import new_session
from bartack.store.requests import post
from bartack.tools import Approver, Decision
from bartack.tools.mcp import HttpServer, McpServer, StdioServer, mcp

__all__ = ["EditorAgent", "MakeAgent", "serve_editor"]

_BUFFER_BYTES = 50 * 1024 * 1024  # one message; a prompt may contain images
_PAGE = 50
_TITLE = 60  # characters of the first prompt
_CWD = "cwd"  # metadata of a session: its directory
_OPTIONS = (
    wire.PermissionOption(option_id="allow", name="Allow", kind="allow_once"),
    wire.PermissionOption(option_id="reject", name="Reject", kind="reject_once"),
)

MakeAgent = Callable[[EditorRuntime, Approver, Sequence[McpServer]], Agent]


class _Open(NamedTuple):
    """A session that the editor has open."""

    agent: Agent
    cwd: str


class EditorAgent:
    """What the editor calls. One editor has one process."""

    def __init__(self, make_agent: MakeAgent, store: SessionStore, forbidden: Sequence[Path] = ()) -> None:
        """`forbidden` are files that the tools must not touch."""
        self._make_agent = make_agent
        self._store = store
        self._forbidden = forbidden
        self._editor: Client | None = None
        self._offers: wire.ClientCapabilities | None = None
        self._open: dict[str, _Open] = {}
        self._runs: dict[str, Run[Any]] = {}

    def on_connect(self, conn: Client) -> None:
        """Called by the library, once."""
        self._editor = conn

    @property
    def editor(self) -> Client:
        """The editor."""
        assert self._editor is not None, "not connected"
        return self._editor

    async def close(self) -> None:
        """Stop everything."""
        for run in list(self._runs.values()):
            run.abort("closed")
        for session in self._open.values():
            await session.agent.close()

    # -- the protocol

    async def initialize(
        self, protocol_version: int, client_capabilities: wire.ClientCapabilities | None = None, **_: Any
    ) -> wire.InitializeResponse:
        """Agree on a version, and say what is supported."""
        self._offers = client_capabilities
        return wire.InitializeResponse(
            protocol_version=min(protocol_version, PROTOCOL_VERSION),
            agent_info=wire.Implementation(name="bartack", title="Bartack", version=version("bartack")),
            agent_capabilities=wire.AgentCapabilities(
                load_session=True,
                mcp_capabilities=wire.McpCapabilities(http=True),
                prompt_capabilities=wire.PromptCapabilities(image=True, audio=True, embedded_context=True),
                session_capabilities=wire.SessionCapabilities(
                    list=wire.SessionListCapabilities(),
                    fork=wire.SessionForkCapabilities(),
                    resume=wire.SessionResumeCapabilities(),
                    close=wire.SessionCloseCapabilities(),
                ),
            ),
        )

    async def authenticate(self, method_id: str, **_: Any) -> None:
        """Nothing to do: keys are in the environment."""

    async def new_session(
        self, cwd: str, mcp_servers: Sequence[Any] | None = None, **_: Any
    ) -> wire.NewSessionResponse:
        """A new session in a directory."""
        session_id = self._store.environment.new_id()
        await self._opened(session_id, cwd, mcp_servers)
        return wire.NewSessionResponse(session_id=session_id)

    async def load_session(
        self, cwd: str, session_id: str, mcp_servers: Sequence[Any] | None = None, **_: Any
    ) -> wire.LoadSessionResponse:
        """Open a stored session, and show all of it."""
        with _errors():
            branch = await self._store.load(session_id)
        await self._opened(session_id, cwd, mcp_servers)
        for update in replayed(branch):
            await self._send(session_id, update)
        return wire.LoadSessionResponse()

    async def resume_session(
        self, session_id: str, cwd: str, mcp_servers: Sequence[Any] | None = None, **_: Any
    ) -> wire.ResumeSessionResponse:
        """Open a stored session that the editor shows already."""
        with _errors():
            await self._store.tail_of(session_id)
        await self._opened(session_id, cwd, mcp_servers)
        return wire.ResumeSessionResponse()

    async def list_sessions(
        self, cwd: str | None = None, cursor: str | None = None, **_: Any
    ) -> wire.ListSessionsResponse:
        """The stored sessions, most recently changed first; with `cwd` those of a directory."""
        with _errors():
            page = await self._store.sessions(limit=_PAGE, cursor=cursor)
            found: list[wire.SessionInfo] = []
            for info in page.items:
                (first, *_rest) = await self._store.entries(info.id, limit=1)
                metadata = (first.fact.metadata if isinstance(first.fact, SessionHeader) else None) or {}
                directory = metadata.get(_CWD)
                if cwd is None or directory == cwd:
                    own = directory if isinstance(directory, str) else str(Path.cwd())
                    made = wire.SessionInfo(
                        session_id=info.id, cwd=own, title=info.title, updated_at=info.updated.isoformat()
                    )
                    found.append(made)
        return wire.ListSessionsResponse(sessions=found, next_cursor=page.cursor)

    async def fork_session(
        self, session_id: str, cwd: str, mcp_servers: Sequence[Any] | None = None, **_: Any
    ) -> wire.ForkSessionResponse:
        """A new session that begins with the messages of another one."""
        with _errors():
            branch = visible(await self._store.load(session_id))
            header = branch[0].fact
            title = header.title if isinstance(header, SessionHeader) else None
            fork_id = self._store.environment.new_id()
            await self._store.create_session(fork_id, SessionHeader(title=title, metadata={_CWD: cwd}))
            messages = with_results(Session.of(branch).messages, (), self._store.environment.new_id)
            if messages:
                await post(self._store, fork_id, *messages)
        await self._opened(fork_id, cwd, mcp_servers)
        return wire.ForkSessionResponse(session_id=fork_id)

    async def close_session(self, session_id: str, **_: Any) -> None:
        """Stop the run of a session, and forget it."""
        await self.cancel(session_id)
        session = self._open.pop(session_id, None)
        if session is not None:
            await session.agent.close()

    async def cancel(self, session_id: str, **_: Any) -> None:
        """Stop the answer in progress; what has arrived of it is kept."""
        run = self._runs.get(session_id)
        if run is not None:
            run.abort("user")

    async def prompt(self, session_id: str, prompt: Sequence[Any], **_: Any) -> wire.PromptResponse:
        """Answer, and show the answer while it arrives."""
        session = self._open.get(session_id)
        if session is None:
            raise RequestError.invalid_params({"sessionId": session_id, "reason": "The session is not open."})
        content = [part for block in prompt for part in _read_block(block)]
        updates = SessionUpdates()
        with _errors():
            async with (
                new_session(self._store, session_id, _header(session.cwd, content)),
                session.agent.stream(user(*content), session=session_id) as run,
            ):
                self._runs[session_id] = run
                try:
                    async for event in run:
                        for update in updates.of(event):
                            await self._send(session_id, update)
                finally:
                    self._runs.pop(session_id, None)
        if updates.stop_reason is None:
            error = updates.error
            raise RequestError(-32603, "The run failed." if error is None else error.message or str(error.error_code))
        return wire.PromptResponse(stop_reason=updates.stop_reason)

    async def set_session_mode(self, session_id: str, mode_id: str, **_: Any) -> None:
        """There are no modes."""
        raise RequestError.method_not_found("session/set_mode")

    async def set_config_option(self, config_id: str, session_id: str, value: str | bool, **_: Any) -> None:
        """There are no options."""
        raise RequestError.method_not_found("session/set_config_option")

    async def ext_method(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """There are no extensions."""
        raise RequestError.method_not_found(method)

    async def ext_notification(self, method: str, params: dict[str, Any]) -> None:
        """There are no extensions."""

    # -- sessions

    async def _opened(self, session_id: str, cwd: str, mcp_servers: Sequence[Any] | None) -> None:
        if not await asyncio.to_thread(Path(cwd).is_dir):
            raise RequestError.invalid_params({"cwd": cwd, "reason": "There is no such directory."})
        with _errors():
            servers = [_mcp_server(one, cwd) for one in mcp_servers or ()]
        known = self._open.pop(session_id, None)
        if known is not None:
            await known.agent.close()
        runtime = EditorRuntime(
            Path(cwd), editor=self.editor, session_id=session_id, offers=self._offers, forbidden=self._forbidden
        )
        with _errors():
            agent = self._make_agent(runtime, _EditorApprover(self, session_id), servers)
        self._open[session_id] = _Open(agent, cwd)

    async def _send(self, session_id: str, update: Update) -> None:
        notification = wire.SessionNotification.model_validate({"sessionId": session_id, "update": update})
        await self.editor.session_update(session_id=session_id, update=notification.update)


class _EditorApprover:
    """Asks the user of the editor."""

    def __init__(self, agent: EditorAgent, session_id: str) -> None:
        self._agent = agent
        self._session_id = session_id

    async def decide(self, request: ApprovalRequired) -> Decision:
        shown = {"toolCallId": request.tool_call_id, **call_update(request.tool_name, request.arguments)}
        reply = await self._agent.editor.request_permission(
            session_id=self._session_id,
            tool_call=wire.ToolCallUpdate.model_validate(shown),
            options=list(_OPTIONS),
        )
        chosen = reply.outcome
        if chosen.outcome != "selected":
            return Decision("deny", reason="The question was cancelled.")
        return Decision("approve" if chosen.option_id == "allow" else "deny", decided_by="editor")


def _header(cwd: str, prompt: Sequence[ContentPart]) -> SessionHeader:
    text = " ".join(" ".join(part.text for part in prompt if isinstance(part, Text)).split())
    return SessionHeader(title=text[:_TITLE] or None, metadata={_CWD: cwd})


def _mcp_server(server: Any, cwd: str) -> McpServer:
    """A server as the editor describes it."""
    match server:
        case wire.McpServerStdio():
            variables = {one.name: one.value for one in server.env}
            config = StdioServer(command=server.command, args=tuple(server.args), env=variables, cwd=cwd)
            return mcp(config, name=server.name)
        case wire.HttpMcpServer():
            headers = {one.name: one.value for one in server.headers}
            return mcp(HttpServer(url=server.url, headers=headers), name=server.name)
        case _:
            reason = "Only MCP servers over stdio and streamable HTTP are supported."
            raise RequestError.invalid_params({"mcpServers": server.name, "reason": reason})


def _read_block(block: Any) -> list[ContentPart]:
    """The content of a prompt; a link is text, because the tools can read it."""
    match block.type:
        case "text":
            return [Text(block.text)]
        case "image":
            return [Image(block.mime_type, data=_decoded(block.data))]
        case "audio":
            return [FileRef.from_bytes(_decoded(block.data), "audio", mime_type=block.mime_type)]
        case "resource_link":
            return [Text(f"[{block.name}]({block.uri})")]
        case _:
            resource = block.resource
            text = getattr(resource, "text", None)
            if text is not None:
                return [Text(f'<file uri="{resource.uri}">\n{text}\n</file>')]
            return [FileRef.from_bytes(_decoded(resource.blob), resource.uri, mime_type=resource.mime_type)]


def _decoded(data: str) -> bytes:
    try:
        return b64decode(data, validate=True)
    except (Base64Error, ValueError):
        raise RequestError.invalid_params({"reason": "The data is not base64."}) from None


@contextmanager
def _errors() -> Iterator[None]:
    """Errors of ours as errors of the protocol."""
    try:
        yield
    except NotFound as error:
        raise RequestError(-32002, error.message) from None
    except BartackError as error:
        raise RequestError(-32603, error.message, {"code": str(error.code)}) from None


# -- the connection


async def serve_editor(agent: EditorAgent) -> None:
    """Serve the editor at stdin and stdout until it closes them."""
    async with _protocol_streams() as (reader, writer):
        served: Any = agent  # the methods take the parameters that they need, and ignore the others
        connection = AgentSideConnection(served, writer, reader, listening=False, use_unstable_protocol=True)
        try:
            await connection.listen()
        finally:
            await asyncio.shield(connection.close())
            await agent.close()


@asynccontextmanager
async def _protocol_streams() -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Stdin and stdout, for the protocol alone: what anything else prints to stdout goes to stderr."""
    sys.stdout.flush()
    own = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    printed: Any = sys.stdout
    sys.stdout = own  # `stdio_streams` takes it from there
    try:
        reader, writer = await stdio_streams(limit=_BUFFER_BYTES)
    finally:
        sys.stdout = printed
    yield reader, writer
