"""The `bartack` command starts, reports errors in one line with a hint, and names the extra that is missing."""

import os
import re
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

import bartack
from bartack.app.extras import COMMAND_PACKAGES, EXTRAS, LIBRARY_PACKAGES
from bartack.cli.entry import Command, run
from bartack.cli.options import UsageError, usage_errors
from bartack.nouns.errors import BartackError, ErrorCode
from bartack.store.address import ADDRESS_FORMS
from lab.repository import PACKAGES, ROOT


def project_of(package: str) -> dict[str, Any]:
    """The table `project` of its pyproject.toml."""
    text = (ROOT / "packages" / package / "pyproject.toml").read_text(encoding="utf-8")
    return cast("dict[str, Any]", tomllib.loads(text)["project"])


PROJECT = project_of("bartack")
LIMIT = 300  # seconds; only a hang takes this long
START = "from bartack.cli import main; main()"

COMMANDS = {"greet": Command("greet_command", "Say hello."), "fail": Command("fail_command", "Fail on purpose.")}

GREET = """
from bartack.cli.options import new_app
app = new_app("Say hello.")

@app.command()
def greet(name: str) -> None:
    print(f"hello {name}")
"""

FAIL = """
from bartack.cli.options import new_app
from bartack.nouns.errors import BartackError
app = new_app("Fail on purpose.")

@app.command()
def fail(how: str) -> None:
    match how:
        case "ours":
            raise BartackError("the disk\\nis full")
        case "bug":
            raise KeyError("tokens")
        case "evil":
            error = BartackError("a\\x1b[31mb\\x9b2Jc\\u202ed")
            error.add_note("e\\x1b]0;title\\x07f")
            raise error
        case "our-import":
            from bartack.nouns.errors import no_such_name
        case "extra":
            raise ModuleNotFoundError("No module named 'aiohttp'", name="aiohttp")
"""


@pytest.fixture
def two_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the modules of COMMANDS importable."""
    (tmp_path / "greet_command.py").write_text(GREET, encoding="utf-8")
    (tmp_path / "fail_command.py").write_text(FAIL, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))


def python(*arguments: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, *arguments],
        env=os.environ | variables,
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT,
    )


def test_ctrl_c_during_the_imports_ends_the_command_without_a_traceback(tmp_path: Path) -> None:
    slow = "import os, signal, time; os.kill(os.getpid(), signal.SIGINT); time.sleep(100)"
    (tmp_path / "msgspec.py").write_text(slow, encoding="utf-8")
    module, _, function = PROJECT["scripts"]["bartack"].partition(":")
    search = os.pathsep.join([str(tmp_path), str(PACKAGES["bartack"].parent)])
    done = python("-c", f"from {module} import {function}; {function}()", "--version", PYTHONPATH=search)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")


def test_ctrl_c_once_the_command_has_started_is_handled_by_python(tmp_path: Path) -> None:
    slow = "import os, signal, time; os.kill(os.getpid(), signal.SIGINT); time.sleep(100)"
    (tmp_path / "typer.py").write_text(slow, encoding="utf-8")
    search = os.pathsep.join([str(tmp_path), str(PACKAGES["bartack"].parent)])
    done = python("-c", "from bartack_command import main; main()", "run", "hi", PYTHONPATH=search)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.parametrize("module", ["bartack", "bartack.cli"])
def test_version_prints_the_version_of_the_project(module: str) -> None:
    done = python("-m", module, "--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"bartack {PROJECT['version']}\n", "")


@pytest.mark.parametrize("words", [[], ["--help"], ["-h"]])
def test_the_front_page_is_shown_by_help_and_without_arguments(words: list[str]) -> None:
    done = python("-c", START, *words)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Usage: bartack ")
    assert "--version" in done.stdout


@pytest.mark.parametrize(
    ("words", "slow"),
    [
        (["--help"], {"typer", "rich", "asyncio", "aiohttp"}),
        (["show", "--help"], {"aiohttp", "importlib.metadata"}),  # found without reading entry points
    ],
)
def test_help_loads_no_slow_library(words: list[str], slow: set[str]) -> None:
    code = f"import sys, bartack.cli.entry as a; a.run({words}); sys.exit(str(sorted({slow!r} & set(sys.modules))))"
    assert python("-c", code).stderr == "[]\n"


def test_the_front_page_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"], COMMANDS) == 0
    assert "\nCommands:\n  greet  Say hello.\n  fail   Fail on purpose.\n\nOptions:\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "report"),
    [
        ("schema", "bartack: typer is not installed.\nhint: Run: pip install 'bartack[cli]'\n"),
        (
            "serve",
            "bartack: 'bartack serve' needs the package bartack-server.\nhint: Run: pip install bartack-server\n",
        ),
    ],
)
def test_a_bare_installation_prints_what_to_install(words: str, report: str, tmp_path: Path) -> None:
    """No site-packages at all (-S): only Bartack and the one library that it depends on."""
    (tmp_path / "bartack").symlink_to(Path(bartack.__file__).parent)
    (tmp_path / "msgspec").symlink_to(Path(msgspec.__file__).parent)
    page = python("-S", "-c", START, "--help", PYTHONPATH=str(tmp_path))
    assert (page.returncode, page.stderr) == (0, "")
    assert "\n  schema " in page.stdout
    assert "\n  serve " not in page.stdout
    done = python("-S", "-c", START, words, PYTHONPATH=str(tmp_path))
    assert (done.returncode, done.stdout, done.stderr) == (2, "", report)


@pytest.mark.parametrize("library", ["typer", "rich"])
def test_a_missing_library_of_the_command_line_is_named(library: str) -> None:
    done = python("-c", f"import sys; sys.modules[{library!r}] = None; {START}", "schema")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"bartack: {library} is not installed.\nhint: Run: pip install 'bartack[cli]'\n"


def test_a_missing_module_of_our_own_is_not_masked() -> None:
    done = python("-c", f"import sys; sys.modules['bartack.cli.entry'] = None; {START}", "--version")
    assert done.returncode == 1
    assert "ModuleNotFoundError: import of bartack.cli.entry halted" in done.stderr
    assert "pip install" not in done.stderr


IMPORT_NAMES = {"opentelemetry_api": "opentelemetry", "agent_client_protocol": "acp"}


def library_names(requirements: Iterable[str]) -> set[str]:
    """The import name of each required library that is not a package of ours."""
    packages = {
        re.split(r"[^\w.-]", requirement)[0].replace("-", "_").removesuffix("_py") for requirement in requirements
    }
    return {
        IMPORT_NAMES.get(package, package) for package in packages if package not in {"bartack", "bartack_transcripts"}
    }


def test_the_import_name_of_every_library_of_an_extra_is_known() -> None:
    extras = {(name.replace(".", "_"), extra) for name, extra in EXTRAS.items()}
    declared = {
        (library, extra)
        for extra, requirements in PROJECT["optional-dependencies"].items()
        if extra != "all"
        for library in library_names(requirements)
    }
    assert {name for name, _ in declared} <= {name for name, _ in extras}  # one may be in several extras
    assert extras - declared == {("google", "cloud")}


@pytest.mark.parametrize("package", [name for name in PACKAGES if name != "bartack"])
def test_the_libraries_and_commands_of_every_other_package_are_known(package: str) -> None:
    module = package.replace("-", "_")
    project = project_of(package)
    libraries = {module, *library_names(project["dependencies"])}
    for requirements in project.get("optional-dependencies", {}).values():
        libraries |= library_names(requirements)
    assert libraries <= LIBRARY_PACKAGES.keys() | EXTRAS.keys()  # bartack[cli] may bring one of them, too
    assert {name for name, owner in LIBRARY_PACKAGES.items() if owner.startswith(package)} <= libraries
    commands = import_module(f"{module}.commands").COMMANDS
    assert {name for name, owner in COMMAND_PACKAGES.items() if owner == package} == commands.keys()


@pytest.mark.usefixtures("two_commands")
def test_a_command_gets_its_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["greet", "Ada"], COMMANDS) == 0
    assert capsys.readouterr().out == "hello Ada\n"


@pytest.mark.usefixtures("two_commands")
def test_an_unknown_option_is_a_usage_error_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["greet", "--loud"], COMMANDS) == 2
    assert "bartack greet --help" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("word", "report"),
    [
        ("great", "bartack: Unknown command 'great'.\nhint: Did you mean 'bartack greet'?\n"),
        ("zzz", "bartack: Unknown command 'zzz'.\nhint: 'bartack --help' lists the commands and options.\n"),
        ("--loud", "bartack: Unknown option '--loud'.\nhint: 'bartack --help' lists the commands and options.\n"),
    ],
)
def test_an_unknown_command_or_option_is_one_line_and_a_hint(
    word: str, report: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([word], COMMANDS) == 2
    assert capsys.readouterr().err == report


@pytest.mark.usefixtures("two_commands")
@pytest.mark.parametrize(("how", "text"), [("ours", "the disk is full"), ("bug", "KeyError: 'tokens'")])
def test_an_error_is_one_line_and_a_hint(how: str, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["fail", how], COMMANDS) == 1
    assert capsys.readouterr().err == f"bartack: {text}\nhint: Re-run with --debug for a traceback.\n"


def test_a_missing_file_needs_no_traceback(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("typer", reason="typer is not installed (bartack[cli])")
    assert run(["import", str(tmp_path / "none.jsonl")]) == 1
    err = capsys.readouterr().err
    assert err.startswith(f"bartack: {tmp_path}/none.jsonl: No such file or directory\nhint: Check the path")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full, where every write fails")
@pytest.mark.parametrize("words", ["--help", "run --help", "schema"])
def test_output_that_cannot_be_written_is_an_error_and_a_closed_pipe_is_silent(words: str) -> None:
    command = f'"$0" -m bartack.cli {words} > /dev/full; echo $?; set -o pipefail; "$0" -m bartack.cli {words} | true'
    done = subprocess.run(
        ["bash", "-c", command, sys.executable], capture_output=True, text=True, check=False, timeout=LIMIT
    )
    assert (done.returncode, done.stdout) == (141, "1\n")
    assert done.stderr.startswith("bartack: Cannot write to stdout: No space left on device.\nhint: ")
    assert len(done.stderr.splitlines()) == 2


def test_a_deleted_directory_is_named(tmp_path: Path) -> None:
    command = 'mkdir here; cd here; rmdir ../here; exec "$0" -m bartack.cli run hi -m ollama:x'
    done = subprocess.run(
        ["sh", "-c", command, sys.executable],
        cwd=tmp_path,
        env=os.environ | {"XDG_DATA_HOME": str(tmp_path / "data")},
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT,
    )
    assert (done.returncode, done.stderr.splitlines()[0]) == (2, "bartack: The current directory no longer exists.")


@pytest.mark.usefixtures("two_commands")
def test_control_characters_of_an_error_are_removed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["fail", "evil"], COMMANDS) == 1
    assert capsys.readouterr().err == "bartack: abcd\nhint: ef\n"


@pytest.mark.usefixtures("two_commands")
@pytest.mark.parametrize("words", [["--debug", "fail", "bug"], ["fail", "bug", "--debug"]])
def test_debug_raises_the_error(words: list[str]) -> None:
    with pytest.raises(KeyError, match="tokens"):
        run(words, COMMANDS)


@pytest.mark.usefixtures("two_commands")
def test_debug_after_a_double_dash_is_an_argument(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["greet", "--", "--debug"], COMMANDS) == 0
    assert capsys.readouterr().out == "hello --debug\n"


@pytest.mark.usefixtures("two_commands")
@pytest.mark.parametrize("how", ["our-import", "extra"])
def test_an_import_error_inside_a_command_is_raised(how: str) -> None:
    with pytest.raises(ImportError, match="no_such_name" if how == "our-import" else "aiohttp"):
        run(["fail", how], COMMANDS)


def test_a_usage_error_has_exit_status_2_and_keeps_its_hint() -> None:
    error = BartackError("Wrong.", code=ErrorCode.INVALID_CONFIG)
    error.add_note("Do this.")
    with pytest.raises(UsageError, match=r"Wrong\.") as raised, usage_errors():
        raise error
    assert (raised.value.exit_status, raised.value.code) == (2, ErrorCode.INVALID_CONFIG)
    assert raised.value.__notes__ == ["Do this."]


def test_the_help_of_the_store_option_lists_all_address_forms() -> None:
    assert ADDRESS_FORMS in " ".join(python("-m", "bartack.cli", "show", "--help").stdout.split())


def test_an_argument_that_is_not_utf_8_is_a_usage_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = str(tmp_path / "new.db")
    (tmp_path / "s.jsonl").write_bytes(b"")
    assert run(["sessions", "import", str(tmp_path / "s.jsonl"), "--store", store]) == 0
    capsys.readouterr()
    assert run(["show", "x\udcff", "--store", store]) == 2
    assert capsys.readouterr().err.startswith("bartack: An argument is not valid UTF-8.\nhint: ")


def test_a_directory_in_place_of_a_file_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["sessions", "import", str(tmp_path), "--store", str(tmp_path / "new.db")]) == 1
    assert capsys.readouterr().err == f"bartack: {tmp_path}: Is a directory\nhint: Name a file in it.\n"
