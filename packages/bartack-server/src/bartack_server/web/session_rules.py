"""`SessionRules`: what may be done in a session without asking its user: the calls that rules allow, and those that the
permission mode allows or refuses.

Rules and modes are those of the terminal (`bartack.app.permissions`, `bartack.app.modes`). Here they apply to one
session, in this process, until it ends: they are never stored, so no imported session and no other server has any. The
question and the decision are still stored in the session, and the decision names the rule or the mode.
"""

from pathlib import Path
from typing import Any, Literal

from bartack.agent import Agent
from bartack.app.modes import MODES, PLAN_REFUSAL, Mode, ModePolicy
from bartack.app.permissions import Rule, RuledCall, choices_for, covering
from bartack.nouns.entries import ApprovalRequired
from bartack.nouns.errors import PartValidationError
from bartack.session.decisions import Decision
from bartack.tools import Approver, LocalRuntime

__all__ = ["Scope", "SessionRules", "modes_of", "rule_for", "rules_for", "tools_root"]

Scope = Literal["command", "families", "file", "tool"]  # what a rule covers, from the narrowest to the widest


def tools_root(agent: Agent[Any, Any]) -> Path | None:
    """The directory that an agent's file tools and commands work in, if it is one of this machine."""
    return agent.runtime.root if isinstance(agent.runtime, LocalRuntime) else None


def modes_of(agent: Agent[Any, Any]) -> tuple[Mode, ...]:
    """The permission modes that users of an agent can choose: none but for one that works on files of this machine."""
    if not isinstance(agent.runtime, LocalRuntime):
        return ()
    return tuple(mode for mode in MODES if mode != "sandbox" or agent.runtime.sandbox is not None)


def rules_for(question: ApprovalRequired, root: Path | None) -> dict[Scope, Rule]:
    """The rules that would cover this call; `root` is the directory that the agent's tools work in."""
    return {_scope(choice.rule): choice.rule for choice in choices_for(_ruled(question, root))}


def _ruled(question: ApprovalRequired, root: Path | None) -> RuledCall:
    return RuledCall(question.tool_name, question.arguments, question.definition_digest, root)


def _scope(rule: Rule) -> Scope:
    if rule.command is not None:
        return "command"
    if rule.families:
        return "families"
    return "file" if rule.path not in (None, ".") else "tool"


def rule_for(question: ApprovalRequired, root: Path | None, scope: Scope) -> Rule:
    """The rule of this scope; `PartValidationError` if there is none for this call."""
    rules = rules_for(question, root)
    if scope not in rules:
        raise PartValidationError(f"This call can be allowed as {', '.join(rules)}, not {scope}.", path="$.always")
    return rules[scope]


class SessionRules:
    """The rules and the permission modes of all sessions."""

    def __init__(self) -> None:
        self._rules: dict[str, list[Rule]] = {}
        self._modes: dict[str, Mode] = {}  # without those of sessions in the mode ask

    def of(self, session_id: str) -> list[Rule]:
        """The rules of a session."""
        return self._rules.get(session_id, [])

    def add(self, session_id: str, rule: Rule) -> None:
        """Allow calls that the rule covers from now on."""
        if rule not in self.of(session_id):
            self._rules.setdefault(session_id, []).append(rule)

    def clear(self, session_id: str) -> None:
        """Ask about every call again."""
        self._rules.pop(session_id, None)

    def mode_of(self, session_id: str) -> Mode:
        """The permission mode of a session."""
        return self._modes.get(session_id, "ask")

    def set_mode(self, session_id: str, mode: Mode) -> None:
        """Decide about calls as this mode says from now on."""
        if mode == "ask":
            self._modes.pop(session_id, None)
        else:
            self._modes[session_id] = mode

    def decision(self, session_id: str, agent: Agent[Any, Any], question: ApprovalRequired) -> Decision | None:
        """The decision of the mode or of a rule; None if the user has to decide."""
        mode, call = self.mode_of(session_id), _ruled(question, tools_root(agent))
        if mode == "plan":
            return Decision("deny", decided_by="plan mode", reason=PLAN_REFUSAL)
        rule = covering(self.of(session_id), call)
        if rule is not None:
            return Decision("approve", decided_by="always", reason=rule.text)
        is_nested = "/" in question.tool_call_id  # of a sub-agent, which may work in another directory
        if mode == "ask" or (is_nested and mode != "yes"):
            return None
        policy = ModePolicy(
            mode,
            is_confined=lambda: "sandbox" in modes_of(agent),
            configured=agent.config.tools.approval,
        )
        if policy.needs_approval(call, declared=True):
            return None
        return Decision("approve", decided_by=f"{mode} mode")

    def approver(self, session_id: str, agent: Agent[Any, Any]) -> Approver:
        """The approver of a run: the mode and the rules of its session, and then the agent's own."""
        return _RuleApprover(self, session_id, agent)


class _RuleApprover:
    def __init__(self, rules: SessionRules, session_id: str, agent: Agent[Any, Any]) -> None:
        self._rules = rules
        self._session_id = session_id
        self._agent = agent

    async def decide(self, request: ApprovalRequired) -> Decision | None:
        decision = self._rules.decision(self._session_id, self._agent, request)
        if decision is not None or self._agent.approver is None:
            return decision
        return await self._agent.approver.decide(request)
