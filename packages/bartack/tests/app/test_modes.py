"""What each permission mode asks about."""

from pathlib import Path
from typing import Any

import pytest

from bartack import BartackError
from bartack.app.modes import Mode, ModePolicy
from bartack.app.permissions import PermissionFile, Rule, RuledCall

EDIT = ("edit_file", {"path": "src/a.py"}, True)
HOOK = ("write_file", {"path": ".git/hooks/pre-commit"}, True)
OUTSIDE = ("write_file", {"path": "../a.py"}, True)
COMMAND = ("run_command", {"command": "make"}, True)
LEAVING = ("run_command", {"command": "make", "unsandboxed": True}, True)
READING = ("read_file", {"path": "src/a.py"}, False)
OTHER = ("fetch", {"url": "https://example.com"}, True)
ALL = (EDIT, HOOK, OUTSIDE, COMMAND, LEAVING, READING, OTHER)


@pytest.mark.parametrize(
    ("mode", "is_confined", "free"),
    [
        ("ask", True, (READING,)),
        ("plan", True, (READING,)),
        ("edit", True, (READING, EDIT)),
        ("sandbox", True, (READING, EDIT, COMMAND)),
        ("sandbox", False, (READING, EDIT)),
        ("yes", False, ALL),
    ],
)
def test_each_mode_asks_about_the_rest(tmp_path: Path, mode: Mode, is_confined: bool, free: Any) -> None:
    policy = ModePolicy(mode, is_confined=lambda: is_confined)
    for call in ALL:
        tool, arguments, declared = call
        needed = policy.needs_approval(RuledCall(tool, arguments, None, tmp_path), declared)
        assert bool(needed) is (call not in free), call


def test_the_configuration_can_always_ask(tmp_path: Path) -> None:
    call = RuledCall("edit_file", {"path": "a.py"}, None, tmp_path)
    policy = ModePolicy("edit", is_confined=lambda: True, configured={"edit_file": "always", "run_command": "never"})
    assert policy.needs_approval(call, declared=True)
    assert not policy.needs_approval(RuledCall("run_command", {"command": "make"}, None, tmp_path), declared=True)
    policy.mode = "plan"
    assert policy.needs_approval(RuledCall("run_command", {"command": "make"}, None, tmp_path), declared=True)


def test_a_rule_allows_a_call_except_in_plan_mode(tmp_path: Path) -> None:
    call = RuledCall("run_command", {"command": "make"}, None, tmp_path)
    policy = ModePolicy("ask", is_confined=lambda: True)
    assert not policy.needs_approval(call, declared=True, has_rule=True)
    policy.mode = "plan"
    assert policy.needs_approval(call, declared=True, has_rule=True)


def test_a_tool_from_elsewhere_is_not_a_file_tool(tmp_path: Path) -> None:
    """An MCP server may offer a tool of the same name."""
    call = RuledCall("edit_file", {"path": "a.py"}, "digest", tmp_path)
    assert ModePolicy("sandbox", is_confined=lambda: True).needs_approval(call, declared=True)


def test_a_mode_is_kept_beside_the_rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BARTACK_CONFIG", str(tmp_path / "config.toml"))
    file = PermissionFile(tmp_path / "project")
    assert file.mode() is None
    file.keep_mode("edit")
    file.add(Rule(command="make"))
    file.keep_mode("sandbox")
    assert file.mode() == "sandbox"
    assert file.rules() == (Rule(command="make"),)
    assert file.path.read_text().count("mode =") == 1
    file.remove(0)
    assert (file.mode(), file.rules()) == ("sandbox", ())
    file.path.write_text('mode = "yes"\n')  # never from a file that is easily forgotten
    with pytest.raises(BartackError, match="is invalid"):
        file.mode()
