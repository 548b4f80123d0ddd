"""Asking the user whether a tool call may run, and what may run without asking."""

import re
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Literal

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text as Styled

from bartack.agent import ApprovalRequested, Run
from bartack.app.modes import PLAN_REFUSAL, Mode, ModePolicy
from bartack.app.permissions import COMMAND_TOOL, Choice, PermissionFile, Rule, RuledCall, choices_for, covering
from bartack.app.safe_text import json_bytes, safe_line
from bartack.display.visible_text import visible_text
from bartack.events import Event, ToolChanged
from bartack.nouns.entries import ApprovalRequired
from bartack.nouns.errors import BartackError, NotFound, PartValidationError, ToolError
from bartack.nouns.parts import ToolCall
from bartack.nouns.tool_states import Completed, Errored
from bartack.session.decisions import question_digest
from bartack.tools import LocalRuntime, ToolDefinition, by_definition
from bartack_code.chat.keyboard import Keyboard
from bartack_code.terminal.messages import show_request
from bartack_code.terminal.screen import Screen

# Below 60 columns: a question that a smaller window wraps leaves a part of itself behind.
_QUESTION = "[y]es  [n]o REASON  [v]iew  [e]dit  [a]lways  [q] stop: "
_SHORT_QUESTION = "[y]es [n]o [v]iew [e]dit [a]lways [q] stop: "  # fits a narrow window
_HELP = (
    "y: run it, n: deny it, n REASON: tell the model why, v: view it in full, e: edit the arguments, "
    "a: always allow it, q or Esc: stop the answer."
)
_EDIT_HELP = "Enter: accept, Alt-Enter: new line, Ctrl-C: back"
_CHANGING = frozenset(("write_file", "edit_file", COMMAND_TOOL))
_WORDS = {"yes": "y", "no": "n", "view": "v", "edit": "e", "always": "a", "quit": "q", "stop": "q", "abort": "q"}


class ApprovalQueue:
    """The questions of a run, in order. All of an answer arrive at once, but what a call would do to a file depends on
    the calls before it, so a question waits until those of them that change files have ended."""

    def __init__(self) -> None:
        self._waiting: deque[ApprovalRequired] = deque()
        self._open: dict[str, str] = {}  # the tools of the calls that have not ended, in order; not those of sub-agents

    def note(self, event: Event) -> None:
        """Take account of an event of the run."""
        match event:
            case ApprovalRequested():
                self._waiting.append(event.request)
            case ToolChanged(state=Completed() | Errored()):
                self._open.pop(event.tool_call_id, None)
            case ToolChanged():
                self._open.setdefault(event.tool_call_id, event.tool_name)
            case _:
                pass

    def next(self) -> ApprovalRequired | None:
        """The question to ask now, if there is one."""
        if not self._waiting or self._depends(self._waiting[0].tool_call_id):
            return None
        return self._waiting.popleft()

    def _depends(self, call_id: str) -> bool:
        ids = list(self._open)
        before = ids[: ids.index(call_id)] if call_id in self._open else []
        return any(self._open[id] in _CHANGING for id in before)


class Approvals:
    """The approval policy of a chat, and its questions to the user.

    `runtime` is where the file tools work, if the chat has them. `permission_file` has the rules of the project.
    """

    def __init__(
        self,
        console: Console,
        keyboard: Keyboard,
        *,
        permission_file: PermissionFile,
        runtime: LocalRuntime | None = None,
        configured: Mapping[str, Literal["never", "always"]] | None = None,
        mode: Mode = "ask",
    ) -> None:
        self._console = console
        self._keyboard = keyboard
        self._runtime = runtime
        self.modes = ModePolicy(mode, is_confined=lambda: self.is_confined, configured=configured)
        self.permission_file = permission_file
        self.session_rules: list[Rule] = []  # rules made for this chat only

    def policy(self, call: ToolCall, definition: ToolDefinition) -> bool | str:
        """Whether a call needs approval: not if a rule covers it, or the mode allows it, or else as configured, or as
        the tool is declared."""
        ruled = self._ruled(definition.name, call.arguments, definition.digest)
        has_rule = self._rule_for(ruled) is not None
        return self.modes.needs_approval(ruled, by_definition(call, definition), has_rule=has_rule)

    @property
    def is_confined(self) -> bool:
        """Whether commands run in a sandbox."""
        return self._runtime is not None and self._runtime.sandbox is not None

    def is_required(self, definition: ToolDefinition) -> bool:
        """Whether calls of this tool need approval, judged without their arguments."""
        return bool(self.policy(ToolCall("any", definition.name, {}), definition))

    def _ruled(self, tool: str, arguments: Mapping[str, Any], digest: str | None) -> RuledCall:
        return RuledCall(tool, arguments, digest, None if self._runtime is None else self._runtime.root)

    def _rule_for(self, call: RuledCall) -> Rule | None:
        return covering([*self.session_rules, *self.permission_file.rules()], call)

    async def ask(self, run: Run, request: ApprovalRequired, screen: Screen) -> bool:
        """Ask the user and pass the decision to the run; False to stop the answer. Raises as `Keyboard` does."""
        with suppress(NotFound, ToolError):  # the run ended in the meantime, or asks again about something else
            if self.modes.mode == "plan":
                digest = question_digest(request)
                run.deny(request.tool_call_id, reason=PLAN_REFUSAL, decided_by="plan mode", question_digest=digest)
                return True
            if self._is_covered(request):
                run.approve(request.tool_call_id, decided_by="always", question_digest=question_digest(request))
                return True
            screen.suspend()
            try:
                is_whole = show_request(self._console, request)
                return await self._decide(run, request, is_seen=is_whole)
            finally:
                self._keyboard.take_typed()
                screen.resume()
        return True

    def _is_covered(self, request: ApprovalRequired) -> bool:
        """Whether the user has allowed such calls after this one was made, with a rule or another mode."""
        ruled = self._ruled(request.tool_name, request.arguments, request.definition_digest)
        try:
            has_rule = self._rule_for(ruled) is not None
        except BartackError:  # the file became invalid, so that the question is asked
            return False
        return not self.modes.needs_approval(ruled, declared=True, has_rule=has_rule)

    async def _decide(self, run: Run, request: ApprovalRequired, *, is_seen: bool) -> bool:
        """Pass the user's decision on. What the user has not seen as a whole (`is_seen`) cannot be approved."""
        call_id, digest = request.tool_call_id, question_digest(request)
        may_allow = bool(self._choices(request))
        while True:
            match await self._choice(may_allow=may_allow):
                case "y" | "a", _ if not is_seen:
                    self._note("Not all of it is shown. Press v to view it in full first.")
                    continue
                case "y", _:
                    run.approve(call_id, decided_by="user", question_digest=digest)
                case "n", reason:
                    run.deny(call_id, reason=reason or None, decided_by="user", question_digest=digest)
                case "v", _:
                    await self._view(request)
                    is_seen = True
                    continue
                case "a", _:
                    if not await self._allow(request):
                        continue
                    run.approve(call_id, decided_by="always", question_digest=digest)
                case "e", _:
                    if not await self._edit(run, request):
                        continue
                case _:
                    return False
            return True

    async def _choice(self, *, may_allow: bool) -> tuple[str, str]:
        """The chosen letter and the text after it. Only the letter or its whole word count: any other input was not
        meant as an answer."""
        question = _QUESTION if len(_QUESTION) < self._console.width else _SHORT_QUESTION
        if not may_allow:
            question = re.sub(r"\[a\]lways +", "", question)
        while True:
            word, _, argument = (await self._keyboard.choice(question)).partition(" ")
            letter = _WORDS.get(word.lower(), word.lower())
            if letter in _WORDS.values():
                return letter, argument.strip()
            self._note(_HELP)

    async def _view(self, request: ApprovalRequired) -> None:
        def draw(console: Console) -> None:
            show_request(console, request, in_full=True)

        await self._keyboard.page(self._console, draw, safe_line(request.tool_name))

    # -- always

    def _choices(self, request: ApprovalRequired) -> list[Choice]:
        return choices_for(self._ruled(request.tool_name, request.arguments, request.definition_digest))

    async def _allow(self, request: ApprovalRequired) -> bool:
        """Ask what exactly to allow from now on; False if the user went back."""
        choices = self._choices(request)
        if not choices:
            self._note("This is always asked about: programs execute or obey what is in this file.")
            return False
        self._note("Allow from now on, without asking:")
        table = Table.grid(padding=(0, 2))
        for number, choice in enumerate(choices, 1):
            table.add_row(f"  {number}", Styled(visible_text(choice.rule.text), overflow="fold"))
            for line in choice.rule.details:
                table.add_row("", Styled(line, style="dim", overflow="fold"))
        self._console.print(table)
        path = self.permission_file.path
        self._note(f"A number allows it until this chat ends; with p, always in this directory ({path}).")
        numbers = "[1]" if len(choices) == 1 else f"[1-{len(choices)}]"
        while True:
            try:
                answer = await self._keyboard.choice(f"{numbers}, [1p] to keep, Enter to go back: ")
            except KeyboardInterrupt:
                return False
            if not answer:
                return False
            if self._keep(answer.lower(), choices):
                return True

    def _keep(self, answer: str, choices: list[Choice]) -> bool:
        number, persists = answer.removesuffix("p").strip(), answer.endswith("p")
        if not number.isdecimal() or not 1 <= int(number) <= len(choices):
            return False
        choice = choices[int(number) - 1]
        if not persists:
            self.session_rules.append(choice.rule)
            return True
        if not choice.may_persist:
            self._note("Every command can only be allowed until this chat ends. Choose without p.")
            return False
        try:
            self.permission_file.add(choice.rule)
        except BartackError as error:
            self._print(safe_line(error.message), style="red")
            return False
        return True

    def _note(self, text: str) -> None:
        self._print(text, style="dim")

    def _print(self, text: str, style: str = "") -> None:
        self._console.print(text, style=style, markup=False, highlight=False)

    async def _edit(self, run: Run, request: ApprovalRequired) -> bool:
        """Let the user edit the arguments until they are valid, and approve the call; False after Ctrl-C or Ctrl-D."""
        text = json_bytes(request.arguments, indent=2).decode()
        self._note(_EDIT_HELP)
        while True:
            try:
                text = await self._keyboard.edit(text)
                arguments = msgspec.json.decode(text, type=dict[str, Any])
                digest = question_digest(request)
                run.approve(request.tool_call_id, arguments=arguments, decided_by="user", question_digest=digest)
                return True
            except (KeyboardInterrupt, EOFError):
                return False
            except msgspec.MsgspecError as error:
                self._print(f"Not a valid JSON object: {safe_line(str(error))}", style="red")
            except PartValidationError as error:
                self._print(safe_line(error.message), style="red")
