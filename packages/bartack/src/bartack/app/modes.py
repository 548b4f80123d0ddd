"""Permission modes: what a session may do without asking, chosen as a whole.

======== ===================================================================================================
ask      asks before every change and command that no rule covers (the default)
plan     refuses changes and commands; the model reads, and answers with a plan for the user to approve
edit     changes files of the workspace without asking; commands are asked about
sandbox  like edit, and runs commands inside the sandbox without asking; leaving it is asked about
yes      asks about nothing
======== ===================================================================================================

In every mode but ``yes``, changes by file tools to what programs execute or obey (`bartack.app.permissions`) are asked
about, and so are the tools that the configuration says to ask about. Commands in the sandbox cannot change the most
important of these files (`bartack.tools.confinement.READONLY`).
"""

from collections.abc import Callable, Mapping
from typing import Literal, get_args

from bartack.app.permissions import COMMAND_TOOL, FILE_TOOLS, Rule, RuledCall
from bartack.app.settings import Mode, settings_file
from bartack.nouns.parts import ToolCall
from bartack.tools import ApprovalPolicy, LocalRuntime, ToolDefinition, by_definition

__all__ = ["MODES", "MODE_TEXTS", "PLAN_REFUSAL", "Mode", "ModePolicy", "mode_policy"]

MODES: tuple[Mode, ...] = get_args(Mode)
MODE_TEXTS: Mapping[Mode, str] = {
    "ask": "asks before changes and commands",
    "plan": "reads only; the model answers with a plan",
    "edit": "changes files in this directory without asking",
    "sandbox": "like edit, and runs commands inside the sandbox without asking",
    "yes": "asks about nothing",
}
PLAN_REFUSAL = (
    "Plan mode: nothing may be changed and no command run. Read what you need, then answer with a plan of the changes."
    " The user leaves plan mode to have it carried out."
)


class ModePolicy:
    """Whether calls need approval in the current mode.

    `is_confined` says whether commands run in a sandbox now. `configured` is the table [approval] of the configuration.
    """

    def __init__(
        self,
        mode: Mode = "ask",
        *,
        is_confined: Callable[[], bool],
        configured: Mapping[str, Literal["never", "always"]] | None = None,
    ) -> None:
        self.mode: Mode = mode
        self._is_confined = is_confined
        self._configured = configured or {}

    def needs_approval(self, call: RuledCall, declared: bool | str, *, has_rule: bool = False) -> bool | str:
        """Whether to ask about this call; in plan mode, a call that would be asked about is refused instead.
        `declared` says whether its tool needs approval, and `has_rule` whether the user has allowed it before."""
        if self.mode == "yes":
            return False
        configured = self._configured.get(call.tool)
        if self.mode == "plan":
            return configured == "always" or declared
        if has_rule:
            return False
        if configured is not None:
            return configured == "always"
        return False if self._is_free(call) else declared

    def _is_free(self, call: RuledCall) -> bool:
        if self.mode not in ("edit", "sandbox") or call.digest is not None:
            return False
        if call.tool in FILE_TOOLS:
            return Rule(tool=call.tool, path=".").covers(call)
        is_inside = self._is_confined() and call.arguments.get("unsandboxed") in (None, False)
        return self.mode == "sandbox" and call.tool == COMMAND_TOOL and is_inside


def mode_policy(mode: Mode, runtime: LocalRuntime | None) -> ApprovalPolicy:
    """The approval policy of a mode that does not change, for an agent with this runtime and no rules of a user."""
    policy = ModePolicy(
        mode,
        is_confined=lambda: runtime is not None and runtime.sandbox is not None,
        configured=settings_file().settings.approval,
    )

    def needs_approval(call: ToolCall, definition: ToolDefinition) -> bool | str:
        root = None if runtime is None else runtime.root
        ruled = RuledCall(definition.name, call.arguments, definition.digest, root)
        return policy.needs_approval(ruled, by_definition(call, definition))

    return needs_approval
