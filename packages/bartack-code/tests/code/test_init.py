"""`bartack init` writes a commented configuration and checks keys; `bartack` alone starts a chat in a terminal."""

import tomllib
from pathlib import Path

import msgspec
import pytest

from bartack.app.settings import Settings, settings_file
from bartack.cli import entry
from bartack.cli.entry import run
from bartack.models.vendors import VENDORS
from bartack.models.weights import known_model
from bartack_code.init import TEMPLATE


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user without keys, settings and models."""
    for name in {name for vendor in VENDORS.values() for name in vendor.key_names} | {"BARTACK_MODEL"}:
        monkeypatch.delenv(name, raising=False)
    path = tmp_path / "settings" / "config.toml"
    monkeypatch.setenv("BARTACK_CONFIG", str(path))
    monkeypatch.setenv("BARTACK_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("BARTACK_LOCAL_MODEL", raising=False)
    settings_file.cache_clear()
    return path


def test_every_setting_of_the_template_is_valid_and_commented_out() -> None:
    assert tomllib.loads(TEMPLATE) == {}
    lines = [line.removeprefix("# ") for line in TEMPLATE.splitlines() if line.startswith("# ")]
    settings = [line for line in lines if " = " in line or line.startswith("[")]
    parsed = tomllib.loads("\n".join(settings))
    msgspec.convert(parsed, Settings)
    assert parsed.keys() == set(Settings.__struct_fields__)


def test_without_a_key_the_demo_model_is_explained_and_nothing_is_asked_without_a_terminal(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("xllamacpp", reason="xllamacpp is not installed (bartack[local])")
    assert run(["init"]) == 0
    out = capsys.readouterr().out
    assert config.read_text(encoding="utf-8") == TEMPLATE
    assert f"settings  {config} (new" in out
    assert "keys      none is set" in out
    assert "published by Qwen (Alibaba Cloud), licence Apache-2.0, sha256 1d9614638d18..." in out
    assert "not downloaded; run: bartack models pull qwen2.5-coder-0.5b" in out
    assert "A small demo model." in out
    assert not known_model("qwen2.5-coder-0.5b").path.exists()


def test_an_existing_file_is_kept_and_keys_are_named_but_not_shown(
    config: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.setenv("GROQ_API_KEY", "gsk secret")
    config.parent.mkdir()
    config.write_text('instructions = "Be brief."', encoding="utf-8")
    assert run(["init"]) == 0
    out = capsys.readouterr().out
    assert config.read_text(encoding="utf-8") == 'instructions = "Be brief."'
    assert "(exists, unchanged)" in out
    assert "OPENAI_API_KEY" in out
    assert "GROQ_API_KEY contains invalid characters" in out
    assert "model     openai:" in out
    assert "secret" not in out


def test_an_invalid_file_is_reported(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config.parent.mkdir()
    config.write_text("modle = 1", encoding="utf-8")
    assert run(["init"]) == 2
    assert "unknown setting 'modle'" in capsys.readouterr().err


def test_a_file_that_cannot_be_written_is_reported(
    config: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    config.parent.write_text("a file where the folder should be", encoding="utf-8")
    assert run(["init"]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"bartack: Cannot write {config}: ")
    assert "hint: Point BARTACK_CONFIG at a writable file.\n" in err


def test_bartack_alone_starts_the_chat_only_in_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run([]) == 0
    assert capsys.readouterr().out.startswith("Usage: bartack ")
    monkeypatch.setattr(entry, "_is_interactive", lambda: True)
    chat = {"chat": entry.Command("no_such_chat", "Chat.")}
    for words in ([], ["-c"], ["--model", "local"]):
        with pytest.raises(ModuleNotFoundError, match="no_such_chat"):
            run(words, chat)
    assert run(["--help"], chat) == 0
