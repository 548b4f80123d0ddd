"""`EditorAgent`: an agent in an editor that supports the Agent Client Protocol.

A session of the editor is a stored session, so it can be continued in the terminal or the browser, and vice versa. Each
session has its own agent for its directory, with the MCP servers configured in the editor. Calls that need approval are
shown to the user in the editor.
"""

import asyncio
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from acp import PROTOCOL_VERSION, Client, RequestError
from acp import schema as wire

from bartack.agent import Agent, Run
from bartack.agent.tool_calls import with_results
from bartack.app.modes import PLAN_REFUSAL, Mode, ModePolicy
from bartack.app.permissions import Rule, RuledCall, choices_for, covering
from bartack.app.sessions import DIRECTORY, directory_of
from bartack.app.settings import settings_file
from bartack.display.question_text import question_text
from bartack.display.visible_text import TAB, visible_text
from bartack.nouns.entries import ApprovalRequired, Session, SessionHeader
from bartack.nouns.errors import BartackError, NotFound
from bartack.nouns.messages import user
from bartack.nouns.parts import ContentPart, FileRef, Image, Text, ToolCall
from bartack.protocols.acp import SessionUpdates, Update, call_update, fenced, one_line, replayed, shown_before
from bartack.protocols.content import is_blank
from bartack.session.redaction import visible
from bartack.session.title import title_from, title_in
from bartack.store import SessionStore
from bartack.store.foreign import is_foreign, mark_foreign
from bartack.store.requests import post
from bartack.store.session_store import new_session
from bartack.tools import Decision, ToolDefinition, by_definition
from bartack.tools.file_changes import change_in, changed_passages
from bartack.tools.local_runtime import CommandOptions
from bartack.tools.mcp import HttpServer, McpServer, StdioServer, mcp
from bartack.tools.sandbox import ABSENT
from bartack_code.editors.editor_runtime import EditorRuntime

__all__ = ["EditorAgent", "EditorApprover", "MakeAgent"]

_PAGE = 50
_ALLOW = wire.PermissionOption(option_id="allow", name="Allow", kind="allow_once")
_REJECT = wire.PermissionOption(option_id="reject", name="Reject", kind="reject_once")
_ALWAYS = "always-"  # followed by the number of a rule

_MODES: dict[Mode, tuple[str, str]] = {
    "ask": ("Ask", "Ask before every change and command"),
    "plan": ("Plan", "Read only, and answer with a plan"),
    "edit": ("Edit", "Change files of the project without asking"),
    "sandbox": ("Sandbox", "Also run commands inside the sandbox without asking"),
    "yes": ("Yes", "Ask about nothing"),
}


class _Open(NamedTuple):
    """A session that the editor has open."""

    agent: Agent
    approver: "EditorApprover"
    cwd: str
    call_ids: set[str]  # the calls that the editor shows


class _Prompt(NamedTuple):
    """A prompt in progress."""

    run: Run[Any]
    updates: SessionUpdates


class EditorAgent:
    """What the editor calls. One editor has one process."""

    def __init__(
        self,
        make_agent: "MakeAgent",
        store: SessionStore,
        forbidden: Sequence[Path] = (),
        commands: CommandOptions | None = None,
    ) -> None:
        """`forbidden` are files that the tools must not touch; `commands` says how commands run."""
        self._make_agent = make_agent
        self._commands = commands or {}
        self._store = store
        self._forbidden = forbidden
        self._editor: Client | None = None
        self._offers: wire.ClientCapabilities | None = None
        self._open: dict[str, _Open] = {}
        self._prompts: dict[str, _Prompt] = {}

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
        for prompt in list(self._prompts.values()):
            prompt.run.abort("closed")
        for session in self._open.values():
            await session.agent.close()

    # -- the protocol

    async def initialize(
        self, protocol_version: int, client_capabilities: wire.ClientCapabilities | None = None, **_: Any
    ) -> wire.InitializeResponse:
        """Negotiate the version, and declare what is supported."""
        self._offers = client_capabilities
        return wire.InitializeResponse(
            protocol_version=PROTOCOL_VERSION,  # the only one; an editor that does not support it disconnects
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
        session = await self._opened(session_id, cwd, mcp_servers)
        return wire.NewSessionResponse(session_id=session_id, modes=session.approver.mode_state())

    async def load_session(
        self, cwd: str, session_id: str, mcp_servers: Sequence[Any] | None = None, **_: Any
    ) -> wire.LoadSessionResponse:
        """Open a stored session, and show all of it."""
        with _errors():
            branch = await self._store.load(session_id)
        session = await self._opened(session_id, cwd, mcp_servers)
        for update in replayed(branch, cwd, session.call_ids):
            await self._send(session_id, update)
        return wire.LoadSessionResponse(modes=session.approver.mode_state())

    async def resume_session(
        self, session_id: str, cwd: str, mcp_servers: Sequence[Any] | None = None, **_: Any
    ) -> wire.ResumeSessionResponse:
        """Open a stored session that the editor shows already."""
        with _errors():
            branch = await self._store.load(session_id)
        session = await self._opened(session_id, cwd, mcp_servers)
        session.call_ids.update(shown_before(branch))
        return wire.ResumeSessionResponse(modes=session.approver.mode_state())

    async def list_sessions(
        self, cwd: str | None = None, cursor: str | None = None, **_: Any
    ) -> wire.ListSessionsResponse:
        """The stored sessions, most recently changed first; with `cwd` those of a directory."""
        infos: list[wire.SessionInfo] = []
        with _errors():
            while True:
                page = await self._store.sessions(_PAGE - len(infos), cursor)
                for info in page.items:
                    directory = await directory_of(self._store, info.id)
                    if cwd is None or directory == cwd:
                        own, updated = directory or str(Path.cwd()), info.updated.isoformat()
                        infos.append(
                            wire.SessionInfo(session_id=info.id, cwd=own, title=info.title, updated_at=updated)
                        )
                cursor = page.cursor
                if cursor is None or len(infos) == _PAGE:
                    return wire.ListSessionsResponse(sessions=infos, next_cursor=cursor)

    async def fork_session(
        self, session_id: str, cwd: str, mcp_servers: Sequence[Any] | None = None, **_: Any
    ) -> wire.ForkSessionResponse:
        """A new session that begins with the messages of another one."""
        with _errors():
            branch = visible(await self._store.load(session_id))
            fork_id = self._store.environment.new_id()
            if await is_foreign(self._store, session_id):
                await mark_foreign(self._store, fork_id)  # its messages are still those of a file
            await self._store.create_session(fork_id, _header(cwd, title_in(branch)))
            messages = with_results(Session.of(branch).messages, (), self._store.environment.new_id)
            if messages:
                await post(self._store, fork_id, *messages)
        session = await self._opened(fork_id, cwd, mcp_servers)
        return wire.ForkSessionResponse(session_id=fork_id, modes=session.approver.mode_state())

    async def close_session(self, session_id: str, **_: Any) -> None:
        """Stop the run of a session, and forget it."""
        await self.cancel(session_id)
        session = self._open.pop(session_id, None)
        if session is not None:
            await session.agent.close()

    async def cancel(self, session_id: str, **_: Any) -> None:
        """Stop the answer in progress; what has arrived of it is kept."""
        prompt = self._prompts.get(session_id)
        if prompt is not None:
            prompt.run.abort("user")

    async def prompt(self, session_id: str, prompt: Sequence[Any], **_: Any) -> wire.PromptResponse:
        """Answer, and show the answer while it arrives."""
        session = self._open.get(session_id)
        if session is None:
            raise RequestError.invalid_params({"sessionId": session_id, "reason": "The session is not open."})
        content = [part for block in prompt for part in _read_block(block)]
        if is_blank(content):
            raise RequestError.invalid_params({"reason": "The prompt is empty."})
        if session_id in self._prompts:
            raise RequestError(-32600, "A prompt is in progress in this session.")
        updates = SessionUpdates(session.cwd, shown_keys=session.call_ids, from_start=True)
        with _errors():
            run = session.agent.stream(user(*content), session=session_id)
        self._prompts[session_id] = _Prompt(run, updates)  # set before anything is awaited, so that it can be cancelled
        try:
            with _errors():
                async with new_session(self._store, session_id, _header(session.cwd, _title(content))), run:
                    async for event in run:
                        for update in updates.of(event):
                            await self._send(session_id, update)
        finally:
            del self._prompts[session_id]
        if updates.stop_reason is None:
            error = updates.error
            raise RequestError(-32603, "The run failed." if error is None else error.message or str(error.error_code))
        return wire.PromptResponse(stop_reason=updates.stop_reason)

    async def set_session_mode(self, session_id: str, mode_id: str, **_: Any) -> wire.SetSessionModeResponse:
        """Change what a session may do without asking."""
        session = self._open.get(session_id)
        mode = next((mode for mode in _MODES if mode == mode_id), None)
        if session is None or mode is None:
            raise RequestError.invalid_params({"sessionId": session_id, "modeId": mode_id})
        session.approver.modes.mode = mode
        return wire.SetSessionModeResponse()

    async def set_config_option(self, config_id: str, session_id: str, value: str | bool, **_: Any) -> None:
        """There are no options."""
        raise RequestError.method_not_found("session/set_config_option")

    async def ext_method(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """There are no extensions."""
        raise RequestError.method_not_found(method)

    async def ext_notification(self, method: str, params: dict[str, Any]) -> None:
        """There are no extensions."""

    # -- sessions

    def shown_id(self, session_id: str, call_id: str) -> str:
        """The id under which the editor shows a call of the prompt in progress."""
        prompt = self._prompts.get(session_id)
        return call_id if prompt is None else prompt.updates.shown_id(call_id)

    async def _opened(self, session_id: str, cwd: str, mcp_servers: Sequence[Any] | None) -> _Open:
        if not await asyncio.to_thread(Path(cwd).is_dir):
            raise RequestError.invalid_params({"cwd": cwd, "reason": "There is no such directory."})
        with _errors():
            servers = [_mcp_server(server, cwd) for server in mcp_servers or ()]
        open_session = self._open.pop(session_id, None)
        if open_session is not None:
            await open_session.agent.close()
        runtime = EditorRuntime(
            Path(cwd),
            editor=self.editor,
            session_id=session_id,
            offers=self._offers,
            forbidden=self._forbidden,
            **self._commands,
        )
        approver = EditorApprover(self, session_id, cwd, runtime)
        with _errors():
            agent = self._make_agent(runtime, approver, servers)
        session = self._open[session_id] = _Open(agent, approver, cwd, set())
        return session

    async def _send(self, session_id: str, update: Update) -> None:
        notification = wire.SessionNotification.model_validate({"sessionId": session_id, "update": update})
        await self.editor.session_update(session_id=session_id, update=notification.update)


class EditorApprover:
    """Asks the user of the editor, and shows the change to a file as a diff.

    What the user always allows is allowed until the session is opened again; it is never stored.
    """

    def __init__(self, agent: EditorAgent, session_id: str, cwd: str, runtime: EditorRuntime) -> None:
        settings = settings_file().settings
        self.modes = ModePolicy(
            settings.mode, is_confined=lambda: runtime.sandbox is not None, configured=settings.approval
        )
        self._agent = agent
        self._session_id = session_id
        self._cwd = cwd
        self._rules: list[Rule] = []

    def policy(self, call: ToolCall, definition: ToolDefinition) -> bool | str:
        """Whether a call needs approval in the mode of the session."""
        ruled = RuledCall(definition.name, call.arguments, definition.digest, Path(self._cwd))
        return self.modes.needs_approval(ruled, by_definition(call, definition))

    def mode_state(self) -> wire.SessionModeState:
        """The modes, and the current one, for the editor."""
        modes = [wire.SessionMode(id=mode, name=name, description=text) for mode, (name, text) in _MODES.items()]
        return wire.SessionModeState(available_modes=modes, current_mode_id=self.modes.mode)

    async def decide(self, request: ApprovalRequired) -> Decision:
        """Ask the user, unless a rule or the mode decides."""
        if self.modes.mode == "plan":
            return Decision("deny", reason=PLAN_REFUSAL, decided_by="plan mode")
        call = RuledCall(request.tool_name, request.arguments, request.definition_digest, Path(self._cwd))
        standing_rule = covering(self._rules, call)
        if standing_rule is not None:
            return Decision("approve", decided_by="always", reason=standing_rule.text)
        rules = [choice.rule for choice in choices_for(call)]
        call_id = self._agent.shown_id(self._session_id, request.tool_call_id)
        tool_call = {"toolCallId": call_id, **call_update(request.tool_name, request.arguments, self._cwd)}
        tool_call["content"] = self._content(request)
        reply = await self._agent.editor.request_permission(
            session_id=self._session_id,
            tool_call=wire.ToolCallUpdate.model_validate(tool_call),
            options=[_ALLOW, *map(_always, range(len(rules)), rules), _REJECT],
        )
        chosen = reply.outcome
        if chosen.outcome != "selected":
            return Decision("deny", reason="The question was cancelled.")
        allowed = {f"{_ALWAYS}{number}": rule for number, rule in enumerate(rules)}.get(chosen.option_id)
        if allowed is not None:
            self._rules.append(allowed)
        is_allowed = allowed is not None or chosen.option_id == _ALLOW.option_id
        return Decision("approve" if is_allowed else "deny", decided_by="editor")

    def _content(self, request: ApprovalRequired) -> list[dict[str, Any]]:
        """What the call would do: a diff, or the question as text. A diff cannot show what is invisible, and nothing
        but the text shows an unknown preview."""
        change = change_in(request)
        if change is None:
            return [fenced(question_text(request))]
        path, is_new = str(Path(self._cwd, change.path)), change.before == ABSENT
        diffs: list[dict[str, Any]] = [
            {"type": "diff", "path": path, "oldText": None if is_new else old_text, "newText": new_text}
            for old_text, new_text in changed_passages(change.diff)
        ]
        is_visible = all(visible_text(row.text) == row.text.replace("\t", TAB) for row in change.diff)
        return diffs if diffs and is_visible else [*diffs, fenced(question_text(request))]


MakeAgent = Callable[[EditorRuntime, EditorApprover, Sequence[McpServer]], Agent]


def _always(number: int, rule: Rule) -> wire.PermissionOption:
    name = one_line(f"Always allow {rule.text}")
    return wire.PermissionOption(option_id=f"{_ALWAYS}{number}", name=name, kind="allow_always")


def _header(cwd: str, title: str | None) -> SessionHeader:
    return SessionHeader(title=title, metadata={DIRECTORY: cwd, "program": "editor"})


def _title(prompt: Sequence[ContentPart]) -> str | None:
    return title_from(" ".join(part.text for part in prompt if isinstance(part, Text)))


def _mcp_server(server: Any, cwd: str) -> McpServer:
    """A server as the editor describes it."""
    match server:
        case wire.McpServerStdio():
            variables = {variable.name: variable.value for variable in server.env}
            config = StdioServer(command=server.command, args=tuple(server.args), env=variables, cwd=cwd)
            return mcp(config, name=server.name)
        case wire.HttpMcpServer():
            headers = {header.name: header.value for header in server.headers}
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
