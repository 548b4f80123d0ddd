"""`SessionRules`: the tool calls that a user has allowed in a session without being asked again.

The rules are those of the terminal (`bartack.app.permissions`). Here they apply to one session, in this process, until
it ends: they are never stored, so no imported session and no other server has any. The question and the decision are
still stored in the session, and the decision names the rule.
"""

from pathlib import Path
from typing import Any, Literal

from bartack.agent import Agent
from bartack.app.permissions import Rule, RuledCall, choices_for, covering
from bartack.nouns.entries import ApprovalRequired
from bartack.nouns.errors import PartValidationError
from bartack.session.decisions import Decision
from bartack.tools import Approver, LocalRuntime

__all__ = ["Scope", "SessionRules", "rule_for", "rules_for", "tools_root"]

Scope = Literal["command", "families", "file", "tool"]  # what a rule covers, from the narrowest to the widest


def tools_root(agent: Agent[Any, Any]) -> Path | None:
    """The directory that an agent's file tools and commands work in, if it is one of this machine."""
    return agent.runtime.root if isinstance(agent.runtime, LocalRuntime) else None


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
    """The rules of all sessions."""

    def __init__(self) -> None:
        self._rules: dict[str, list[Rule]] = {}

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

    def approver(self, session_id: str, own: Approver | None, root: Path | None) -> Approver:
        """The approver of a run whose tools work in `root`: the rules of its session, and then the agent's own."""
        return _RuleApprover(self, session_id, own, root)


class _RuleApprover:
    def __init__(self, rules: SessionRules, session_id: str, own: Approver | None, root: Path | None) -> None:
        self._rules = rules
        self._root = root
        self._session_id = session_id
        self._own = own

    async def decide(self, request: ApprovalRequired) -> Decision | None:
        rule = covering(self._rules.of(self._session_id), _ruled(request, self._root))
        if rule is not None:
            return Decision("approve", decided_by="always", reason=rule.text)
        return None if self._own is None else await self._own.decide(request)
