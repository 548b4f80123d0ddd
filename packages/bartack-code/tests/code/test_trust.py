"""Folders whose instructions the user has agreed to use."""

import json
from pathlib import Path

import pytest

from bartack.nouns.errors import BartackError
from bartack_code.workspace.trust import is_trusted, trust, trust_file


@pytest.fixture(autouse=True)
def _own_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BARTACK_CONFIG", str(tmp_path / "config" / "config.toml"))


def test_trust_covers_a_folder_and_those_below_it(tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / "sub").mkdir(parents=True)
    assert not is_trusted(project)
    trust(project)
    trust(project)
    assert json.loads(trust_file().read_text()) == {str(project): True}
    assert is_trusted(project)
    assert is_trusted(project / "sub")
    assert not is_trusted(tmp_path)
    assert not is_trusted(tmp_path / "project2")
    (tmp_path / "link").symlink_to(project)
    assert is_trusted(tmp_path / "link")


def test_trust_in_the_home_of_the_user_does_not_cover_what_is_cloned_below_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    (home / "clone").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    trust(home)
    trust(tmp_path)
    assert is_trusted(home)
    assert not is_trusted(home / "clone")


def test_an_invalid_list_trusts_nothing_and_a_folder_in_its_place_is_an_error(tmp_path: Path) -> None:
    trust_file().parent.mkdir()
    trust_file().write_text("[")
    assert not is_trusted(tmp_path)
    trust_file().unlink()
    trust_file().mkdir()
    assert not is_trusted(tmp_path)
    with pytest.raises(BartackError, match=r"trusted folders .*cannot be written"):
        trust(tmp_path)
