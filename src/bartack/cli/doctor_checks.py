"""What `bartack doctor` finds, and how it looks: a probe looks at one thing and gives checks.

`examine` runs a probe, turns whatever it raises into a check as well, and keeps keys out of what is shown.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from typing import Literal, NamedTuple

import msgspec

from bartack.cli import EXTRA_OF
from bartack.cli.app import sentence
from bartack.cli.terminal.safe_text import safe_line
from bartack.models.client import MASK, mask_secrets
from bartack.models.vendors import VENDORS

__all__ = ["Check", "Probe", "State", "examine", "fault_of", "keys_set"]

State = Literal["ok", "note", "fault"]

_SHORTEST_KEY = 8  # anything shorter is a word such as "none", which must not be blotted out of every sentence


class Check(msgspec.Struct, frozen=True):
    """One thing that was looked at. A fault always has a hint."""

    section: str
    name: str
    state: State
    text: str
    hint: str | None = None


class Probe(NamedTuple):
    """Where to look; `hint` is for what `look` did not expect."""

    section: str
    name: str
    look: Callable[[], Iterable[Check]]
    hint: str


def examine(probe: Probe) -> Iterator[Check]:
    """What a probe finds, fit to be shown: on one line, without anything that a terminal obeys, without keys."""
    # The longest first: one may be a piece of another.
    secrets = sorted((value for value in keys_set().values() if len(value) >= _SHORTEST_KEY), key=len, reverse=True)

    def shown(text: str) -> str:
        for secret in secrets:
            text = text.replace(secret, MASK)
        return safe_line(text)

    checks: list[Check] = []
    try:
        checks.extend(probe.look())
    except Exception as error:  # noqa: BLE001 - a doctor tells of every fault there is, and one must not hide the others
        checks.append(fault_of(probe.section, probe.name, error, probe.hint))
    for check in checks:
        hint = None if check.hint is None else shown(check.hint)
        yield Check(check.section, shown(check.name), check.state, shown(check.text), hint)


def fault_of(section: str, name: str, error: BaseException, hint: str, *, state: State = "fault") -> Check:
    """An error as a check: its sentence, and its own hint if it has one."""
    text = sentence(error) if isinstance(error, Exception) else type(error).__name__
    if isinstance(error, ModuleNotFoundError) and error.name in EXTRA_OF:
        text, hint = f"{error.name} is not installed", f"pip install 'bartack[{EXTRA_OF[error.name]}]'"
    notes: list[str] = getattr(error, "__notes__", [])
    return Check(section, name, state, mask_secrets(text), notes[-1] if notes else hint)


def keys_set() -> dict[str, str]:
    """Every variable for a vendor's key that holds something, and what: for hiding it."""
    names = {name: None for vendor in VENDORS.values() for name in vendor.key_names}
    return {name: os.environ[name].strip() for name in names if os.environ.get(name, "").strip()}
