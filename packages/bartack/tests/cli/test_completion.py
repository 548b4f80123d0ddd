"""`bartack completion`: real shells source the script and complete lines with it."""

import asyncio
import os
import pty
import select
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from bartack.app.settings import settings_file
from bartack.cli.completion import candidates, complete
from bartack.cli.entry import installed_commands
from bartack.models.vendors import VENDORS
from bartack.models.weights import known_models
from bartack.store import open_store

SESSIONS = ("trip", "tango two", "a:b", "treasure")
LIMIT = 300  # seconds; only a hang takes this long
BASH = shutil.which("bash") or "bash"


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Empty folders, no settings, and this `bartack` on the path."""
    for name in ("HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    for name in [name for name in os.environ if name.startswith("BARTACK_")]:
        monkeypatch.delenv(name)
    program = tmp_path / "bin" / "bartack"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m bartack.cli "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    settings_file.cache_clear()
    yield
    settings_file.cache_clear()


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The store named by BARTACK_STORE, with SESSIONS in it."""
    path = tmp_path / "sessions.db"
    monkeypatch.setenv("BARTACK_STORE", str(path))
    asyncio.run(fill(path, SESSIONS))
    return path


async def fill(path: Path, names: Sequence[str]) -> None:
    opened = await open_store(path)
    for name in names:
        await opened.create_session(name)
    await opened.close()


def in_bash(*lines: Sequence[str]) -> list[list[str]]:
    """What bash offers for the last word of each line after `bartack`. The words are split as bash splits them."""
    calls = []
    for words in lines:
        listed = " ".join(map(shlex.quote, ["bartack", *words]))
        calls.append(f"COMP_WORDS=({listed}); COMP_CWORD={len(words)}; _bartack_completion bartack")
        calls.append("printf '%s|' \"${COMPREPLY[@]}\"; echo")
    script = "\n".join(['eval "$(bartack completion bash)" || exit 3', *calls])
    done = subprocess.run(
        [BASH, "--norc", "--noprofile", "-c", script], capture_output=True, text=True, check=False, timeout=LIMIT
    )
    assert (done.returncode, done.stderr) == (0, "")
    return [line.rstrip("|").split("|") if line != "|" else [] for line in done.stdout.splitlines()]


@pytest.fixture
def offered(capsys: pytest.CaptureFixture[str]) -> Callable[..., list[str]]:
    """The answer to the script for bash, without bash."""

    def call(*words: str) -> list[str]:
        assert complete("bash", words) == 0
        return capsys.readouterr().out.splitlines()[1:]

    return call


needs_bash = pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")


@needs_bash
def test_bash_completes_commands_options_models_and_sessions(store: Path) -> None:
    lines = {
        ("sess",): ["sessions"],
        ("sessions", "s"): ["show", "search", "salvage", "switch"],
        ("sessions", "list", "--l"): ["--limit"],
        ("doctor", "-m", "local", ":", "smol"): ["smollm2-135m"],  # bash replaces only the last piece of a word
        ("show", "tr"): ["treasure", "trip"],  # most recently changed first
        ("decode", "rec"): [],  # a file name, which bash completes itself
    }
    assert in_bash(*lines) == list(lines.values())


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["do"], ["doctor"]),
        (["--de"], ["--debug"]),
        (["--debug", "show", "--as", ""], ["ledger", "feed", "document"]),
        (["show", "--as", "=", "f"], ["feed"]),
        (["show", "--as", "=", ""], []),
        (["doctor", "--as"], ["--ask"]),
        (["completion", ""], ["bash", "zsh", "fish"]),
        (["models", "pull", "smol"], ["smollm2-135m"]),
        (["no-such", "sess"], ["sessions"]),
        ([], list(installed_commands())),
    ],
)
def test_commands_options_and_choices(offered: Callable[..., list[str]], words: list[str], expected: list[str]) -> None:
    assert offered(*words) == expected


def test_model_names_are_completed(offered: Callable[..., list[str]]) -> None:
    names = offered("doctor", "-m", "")
    assert {"local", "anthropic:", "xai-responses:"} <= set(names)
    assert {name for name in names if name.startswith("local:")} == {f"local:{name}" for name in known_models()}
    assert len(names) == 1 + len(known_models()) + len(VENDORS)
    assert offered("doctor", "--model", "=", "local", ":") == list(known_models())
    assert offered("doctor", "--model=local:smol") == ["--model=local:smollm2-135m"]  # COMP_WORDBREAKS was changed


def test_session_ids_are_completed(offered: Callable[..., list[str]], store: Path) -> None:
    assert offered("show", "ta") == ["tango\\ two"]
    assert offered("show", '"ta') == ["tango two"]
    assert offered("sessions", "purge", "a", ":") == ["b"]
    assert offered("sessions", "export", "trip", "tre") == ["treasure"]
    assert offered("show", "--store", f"{store}.other", "tr") == []
    assert not Path(f"{store}.other").exists()


@pytest.mark.parametrize("command", ["chat", "run"])
def test_the_session_option_completes_ids(store: Path, command: str) -> None:
    assert [word for word, _ in candidates([command, "--session"], "tr").words] == ["treasure", "trip"]
    assert [word for word, _ in candidates([command], "--session=tri").words] == ["trip"]


@pytest.mark.parametrize(
    "place", ["sqlite:{}/none.db", "jsonl:{}/none", "{}/notes.txt", "postgresql://x@127.0.0.1:1/x", "memory:"]
)
def test_without_a_store_nothing_is_offered_or_created(
    offered: Callable[..., list[str]], place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "notes.txt").write_text("not a store")
    before = sorted(tmp_path.rglob("*"))
    monkeypatch.setenv("BARTACK_STORE", place.format(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert offered("show", "") == []
    assert sorted(tmp_path.rglob("*")) == before


def test_at_most_fifty_sessions_are_offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "many.db"
    asyncio.run(fill(path, [f"s{number}" for number in range(60)]))
    monkeypatch.setenv("BARTACK_STORE", str(path))
    assert len(candidates(["show"], "").words) == 50


def test_file_names_are_left_to_the_shell() -> None:
    assert candidates(["decode"], "rec").files
    assert candidates(["sessions", "export", "-o"], "").files
    assert candidates(["show", "--store"], "./se").files
    assert not candidates(["sessions", "list", "--limit"], "").files
    assert not candidates(["show"], "").files
    assert [word for word, _ in candidates(["show", "--store"], "").words][:2] == ["memory:", "jsonl:"]


def test_completing_the_first_word_imports_no_command() -> None:
    code = (
        "import sys; from bartack.cli.completion import candidates; print(len(candidates([], '').words));"
        "sys.exit(str(sorted({'bartack.store', 'bartack.agent', 'asyncio', 'rich'} & set(sys.modules))))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=LIMIT)
    assert (done.stderr, int(done.stdout) > 5) == ("[]\n", True)


@pytest.mark.parametrize(
    ("shell", "words", "lines"),
    [
        ("zsh", ["doctor", "-m", "anth"], ["words", ",anthropic\\::anthropic-messages"]),
        ("zsh", ["show", "--as=f"], ["words", ".--as=feed"]),
        ("zsh", ["decode", ""], ["files"]),
        ("fish", ["sess"], ["words", "sessions\tList, search, export, import, check and purge sessions."]),
        (
            "fish",
            ["doctor", "--model=local:smol"],
            ["words", "--model=local:smollm2-135m\ttiny: chats a little, uses no tools"],
        ),
    ],
)
def test_each_shell_gets_lines_in_its_own_format(
    shell: str, words: list[str], lines: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert complete(shell, words) == 0
    assert capsys.readouterr().out.splitlines() == lines


def test_an_unknown_shell_is_rejected(capsys: pytest.CaptureFixture[str]) -> None:
    assert complete("tcsh", ["sess"]) == 1
    assert capsys.readouterr().out == ""
    done = subprocess.run(["bartack", "completion", "tcsh"], capture_output=True, text=True, check=False, timeout=LIMIT)
    assert (done.returncode, done.stdout) == (2, "")
    assert "tcsh" in done.stderr


def test_the_help_page_explains_how_to_enable_it() -> None:
    done = subprocess.run(
        ["bartack", "completion", "--help"], capture_output=True, text=True, check=True, timeout=LIMIT
    )
    assert 'eval "$(bartack completion bash)"' in done.stdout


# -- interactive shells


class Screen:
    """An interactive shell, and what it has printed so far."""

    def __init__(self, command: Sequence[str], folder: Path) -> None:
        self._controller, terminal = pty.openpty()
        environment = os.environ | {"TERM": "dumb", "PS1": "ready> "}
        self._process = subprocess.Popen(
            command,
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            env=environment,
            cwd=folder,
            start_new_session=True,
        )
        os.close(terminal)
        self.shown = ""

    def type(self, keys: str) -> None:
        os.write(self._controller, keys.encode())

    def wait_for(self, text: str, count: int = 1) -> None:
        deadline = time.monotonic() + LIMIT
        while self.shown.count(text) < count:
            timeout = deadline - time.monotonic()
            assert timeout > 0, f"waited for {text!r}, got {self.shown!r}"
            if select.select([self._controller], [], [], timeout)[0]:
                self.shown += os.read(self._controller, 65536).decode("utf-8", "replace")

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._controller)


@pytest.fixture
def screen(tmp_path: Path) -> Iterator[Callable[[Sequence[str]], Screen]]:
    opened: list[Screen] = []

    def start(command: Sequence[str]) -> Screen:
        opened.append(Screen(command, tmp_path))
        return opened[-1]

    yield start
    for shell in opened:
        shell.close()


@needs_bash
def test_the_tab_key_in_bash(screen: Callable[[Sequence[str]], Screen], store: Path, tmp_path: Path) -> None:
    (tmp_path / "recorded.sse").touch()
    bash = screen([BASH, "--norc", "--noprofile", "-i"])
    bash.type('eval "$(bartack completion bash)"; echo is"there"\n')
    bash.wait_for("isthere")
    for typed, completed in [
        ("bartack sess", "bartack sessions "),
        ("bartack doctor -m local:smol", "bartack doctor -m local:smollm2-135m "),
        ("bartack doctor -m anthr", "bartack doctor -m anthropic:"),  # no space, as the name follows
        ("bartack show tan", "bartack show tango two "),
        ("bartack decode rec", "bartack decode recorded.sse "),
    ]:
        bash.type(f"\x15{typed}\t\x01echo [\x05]\n")  # complete, and print the line
        bash.wait_for(f"\n[{completed}]")


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_the_tab_key_in_zsh(screen: Callable[[Sequence[str]], Screen], store: Path) -> None:
    zsh = screen(["zsh", "-f", "-i"])
    zsh.type('autoload -Uz compinit && compinit -u -D; eval "$(bartack completion zsh)"; echo is"there"\n')
    zsh.wait_for("isthere")
    for typed, completed in [
        ("bartack sess", "bartack sessions"),
        ("bartack doctor -m local:smol", "bartack doctor -m local:smollm2-135m"),
        ("bartack show tri", "bartack show trip"),
    ]:
        zsh.type(f'\x15{typed}\t\x01echo "[\x05]"\n')  # quoted: [ starts a pattern in zsh
        zsh.wait_for(f"\n[{completed}")


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_fish_completes_a_line(store: Path) -> None:
    for typed, completed in [("bartack sess", "sessions"), ("bartack doctor -m local:smol", "local:smollm2-135m")]:
        done = subprocess.run(
            ["fish", "--no-config", "-c", f"bartack completion fish | source; complete -C '{typed}'"],
            capture_output=True,
            text=True,
            check=True,
            timeout=LIMIT,
        )
        assert done.stdout.split("\t")[0].strip() == completed
