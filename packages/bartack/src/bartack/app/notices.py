"""One-line notices about the events of a run, shared by all user interfaces."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

from bartack.app.safe_text import safe_line, safe_text
from bartack.events import Compacted, Event, ModelSwitched, Retrying, RunFinished, RunPaused, RunResult
from bartack.formats.losses import Loss
from bartack.nouns.deltas import Failed
from bartack.nouns.tables import AgentStatus

STOPPED = "Stopped. The partial answer is kept."
_VALUE = 60  # characters of one argument


class Notice(NamedTuple):
    """One line about a run."""

    level: Literal["info", "warning", "error"]
    text: str


def notice(event: Event) -> Notice | None:
    """The notice for an event; None for most of them."""
    match event:
        case Retrying():
            wait = f" in {format_duration(event.delay_ms / 1000).replace('.0 ', ' ')}" if event.delay_ms else ""
            return Notice("warning", f"{_failure(event.error)}; retrying{wait} (attempt {event.attempt})")
        case ModelSwitched():
            why = " because the previous model failed" if event.reason == "fallback" else ""
            lost = f" {losses_text(event.report.losses)}" if event.report.losses else ""
            name = safe_line(f"{event.model.provider}:{event.model.model}")
            return Notice("warning", f"Switched to {name}{why}.{lost}")
        case Compacted(tokens_before=int(before), tokens_after=int(after)):
            return Notice("info", f"Compacted {before:,} to {after:,} tokens: older turns are now sent as a summary.")
        case Compacted():
            return Notice("info", "Compacted: older turns are now sent as a summary.")
        case RunPaused():
            waits = [(event.approvals, "approval"), (event.deferred, "a result from outside")]
            calls = " and ".join(
                f"{plural(len(calls), 'tool call')} awaiting {missing}" for calls, missing in waits if calls
            )
            return Notice("warning", f"Paused: {calls}.")
        case RunFinished():
            return end_notice(event.result)
        case _:
            return None


def end_notice(result: RunResult) -> Notice | None:
    """How a run ended; None if it completed."""
    match result.status:
        case AgentStatus.FAILED:
            return Notice(
                "error", _failure(result.error) if result.error else f"failed: {safe_line(result.reason or '')}"
            )
        case AgentStatus.ABORTED:
            return Notice("info", STOPPED)
        case _:
            return None


def _failure(failed: Failed) -> str:
    message = safe_line(failed.message).rstrip(".")
    return f"{failed.error_code}: {message}" if message and message != failed.error_code else str(failed.error_code)


_ACTIONS = {"dropped": "Not sent", "added": "Added", "moved": "Moved"}


def losses_text(losses: Iterable[Loss]) -> str:
    """What a request leaves out, adds or moves because the model's provider requires it."""
    counts = Counter((loss.action, safe_line(f"{loss.what} ({loss.why})")) for loss in losses)
    groups: dict[str, list[str]] = {action: [] for action in _ACTIONS}
    for (action, text), count in counts.items():
        groups[action].append(text + (f", {count} times" if count > 1 else ""))
    return " ".join(f"{_ACTIONS[action]}: {'; '.join(texts)}." for action, texts in groups.items() if texts)


def arguments_text(arguments: Mapping[str, Any], ellipsis: str = "...") -> str:
    """The arguments of a tool call on one line; a text of several lines is replaced by their number. Whitespace is
    kept, because an edit may change nothing else."""
    return " ".join(f"{safe_line(str(key))}={_value_text(value, ellipsis)}" for key, value in arguments.items())


def _value_text(value: Any, ellipsis: str) -> str:
    if not isinstance(value, str):
        return _shortened(json.dumps(value, ensure_ascii=False, default=str), ellipsis)
    lines = value.count("\n") + (not value.endswith("\n"))
    return f"({lines} lines)" if lines > 1 else f'"{_shortened(_escaped(value), ellipsis)}"'


def _escaped(text: str) -> str:
    """The text with tabs and line feeds that can be told from spaces."""
    return text[: 4 * _VALUE].replace("\t", "\\t").replace("\n", "\\n")


def _shortened(text: str, ellipsis: str) -> str:
    line = safe_text(text[: 4 * _VALUE]).replace("\n", " ")
    return line if len(line) <= _VALUE else line[: _VALUE - len(ellipsis)].rstrip() + ellipsis


def exit_code(metadata: Mapping[str, Any] | None) -> int | None:
    """The exit code of the command whose result has this metadata; negative for a signal."""
    code = (metadata or {}).get("exit_code")
    return code if isinstance(code, int) and not isinstance(code, bool) else None


def exit_text(code: int) -> str:
    """`exit code 1`, or `killed by signal 9`."""
    return f"exit code {code}" if code >= 0 else f"killed by signal {-code}"


def format_duration(seconds: float) -> str:
    """A length of time: `0.4 s`, `12 s`, `2 min 05 s`."""
    if seconds < 9.95:
        return f"{max(seconds, 0.0):.1f} s"
    return format_seconds(seconds)


def format_seconds(seconds: float) -> str:
    """A length of time in whole seconds, at least one."""
    total = max(round(seconds), 1)
    return f"{total} s" if total < 60 else f"{total // 60} min {total % 60:02} s"


def plural(count: int, singular: str, plural_form: str | None = None) -> str:
    """`no entries`, `1 entry`, `2 entries`."""
    return f"{count or 'no'} {singular if count == 1 else plural_form or f'{singular}s'}"
