"""Settings: where they come from, and what is rejected."""

from pathlib import Path

import pytest

from bartack.app.sessions import configured_store
from bartack.app.settings import choose_model, config_path, setting, settings_file
from bartack.models.by_name import DefaultModel, default_model
from bartack.nouns.errors import BartackError, ErrorCode, StoreError
from tests.app.config_file import FULL, write_config

pytestmark = pytest.mark.usefixtures("folder")


def test_without_a_file_every_setting_has_its_default() -> None:
    file = settings_file()
    assert not file.exists
    assert file.settings.model is None
    assert setting("store", None) is None
    assert setting("store", "memory:") == "memory:"


def test_the_file_applies_where_flag_and_environment_are_not_set() -> None:
    assert write_config(FULL) == settings_file().path
    assert settings_file().exists
    assert setting("instructions", None) == "Be brief."
    assert setting("instructions", "Be long.") == "Be long."
    assert choose_model(None) == DefaultModel("openai-compatible:m", "")
    assert choose_model("local") == DefaultModel("local", "")


def test_bartack_config_names_another_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_config("thinking = true")
    second_file = folder / "other.toml"
    second_file.write_text("", encoding="utf-8")
    monkeypatch.setenv("BARTACK_CONFIG", "~/other.toml")
    assert config_path() == second_file
    assert not settings_file().settings.thinking


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("model = ", "is not valid TOML"),
        ("modle = 'x'", "has an unknown setting 'modle'."),
        ("theme = 'nope'", "has an invalid value for theme, 'nope'."),
        ("model = 3", "$.model"),
        ("[approval]\nread_file = 'sometimes'", "sometimes"),
    ],
)
def test_an_invalid_file_is_reported_with_its_path_and_the_problem(text: str, fault: str) -> None:
    path = write_config(text)
    with pytest.raises(BartackError) as raised:
        settings_file()
    assert str(path) in raised.value.message
    assert fault in raised.value.message
    assert raised.value.code is ErrorCode.INVALID_CONFIG
    assert "BARTACK_CONFIG" in raised.value.__notes__[-1]


def test_a_misspelled_setting_or_value_is_corrected() -> None:
    hints = {
        "modell = 'x'": "Did you mean 'model'? ",
        "[commands]\ntimeot_s = 1": "Did you mean 'timeout_s'? ",
        "theme = 'x'": "Use one of auto, light, ",
        "[commands]\nsandbox = 'x'": "Use one of auto, bubblewrap, ",
    }
    for text, hint in hints.items():
        write_config(text)
        settings_file.cache_clear()
        with pytest.raises(BartackError) as raised:
            settings_file()
        assert raised.value.__notes__[-1].startswith(hint)


def test_unreadable_and_missing_files_are_errors(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_config("").write_bytes(b"\xff\xfe")
    with pytest.raises(BartackError, match="is not valid TOML"):
        settings_file()
    monkeypatch.setenv("BARTACK_CONFIG", str(folder / "missing.toml"))
    with pytest.raises(BartackError, match="does not exist, but BARTACK_CONFIG names it"):
        settings_file()
    monkeypatch.setenv("BARTACK_CONFIG", str(folder))
    with pytest.raises(BartackError, match="cannot be read"):
        settings_file()


def test_the_default_is_a_vendor_with_a_key_or_the_local_model(monkeypatch: pytest.MonkeyPatch) -> None:
    assert default_model() == DefaultModel("local", "no API key is set")
    monkeypatch.setenv("MISTRAL_API_KEY", "k")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "  ")
    name, reason = choose_model(None)
    assert name.startswith("mistral:")
    assert reason == "MISTRAL_API_KEY is set"


def test_blank_values_count_as_not_given(folder: Path) -> None:
    write_config(FULL)
    assert choose_model(" ").name == "openai-compatible:m"
    assert choose_model(" local\n").name == "local"
    assert configured_store("  ").text == f"sqlite:{folder / 'sessions.db'}"


def test_the_store_is_the_configured_one_or_in_the_data_folder(folder: Path) -> None:
    assert configured_store(None).text == f"sqlite:{folder / 'data' / 'bartack' / 'sessions.db'}"
    assert configured_store("memory:").text == "memory:"
    write_config(FULL)
    settings_file.cache_clear()
    assert configured_store(None).text == f"sqlite:{folder / 'sessions.db'}"


@pytest.mark.parametrize("place", ["mysql://u:topsecret@h/d", "POSTGRESQL://u:topsecret@h/d"])
def test_an_unknown_kind_of_store_is_rejected(place: str) -> None:
    with pytest.raises(StoreError, match="Unknown store type") as raised:
        configured_store(place)
    assert f'"{place.partition(":")[0]}://"' in raised.value.message
    assert raised.value.code is ErrorCode.INVALID_CONFIG
    assert "--store" in raised.value.__notes__[-1]
