"""Files that a prompt mentions."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from bartack.nouns.errors import PartValidationError
from bartack.nouns.parts import FileRef, Image
from bartack_code.workspace.attachments import (
    as_mention,
    command_output_part,
    completions,
    dropped_mentions,
    load_mention,
    mentions,
)

PNG = b"\x89PNG\r\n\x1a\n" + bytes(16)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "app.py").write_text("".join(f"line {n}\n" for n in range(1, 31)))
    (tmp_path / "my notes.txt").write_text("note\n")
    (tmp_path / "picture.png").write_bytes(PNG)
    (tmp_path / ".hidden").write_text("x")
    return tmp_path


def names(text: str, project: Path) -> list[str]:
    return [mention.name for mention in mentions(text, project)]


def test_existing_paths_are_mentioned_and_others_are_text(project: Path) -> None:
    assert names("see @src/app.py, and (@src/) @src/app.py.", project) == ["src/app.py"]
    assert names("@src/ @src/app.py @src/app.py", project) == ["src/", "src/app.py"]
    assert names('read @"my notes.txt"!', project) == ["my notes.txt"]
    assert names("a@src/app.py @dataclass @nobody:3 @ @~nobody/x @\0", project) == []
    assert names(f"@{project}/picture.png", project) == [f"{project}/picture.png"]


def content(text: str, project: Path) -> str:
    (mention,) = mentions(text, project)
    part = load_mention(mention)
    assert isinstance(part, FileRef)
    assert part.data is not None
    return part.data.decode()


def test_files_lines_and_directories_are_attached(project: Path) -> None:
    assert content("@src/app.py", project).count("\n") == 30
    assert content("@src/app.py:3-4", project) == "line 3\nline 4"
    assert content("@src/app.py:3.", project) == "line 3"
    assert content("@src/app.py:9-5", project) == "line 9"
    assert content("@src/app.py:99", project) == "(no such lines)"
    assert content("@src", project) == "app.py"
    assert content('@"my notes.txt":1', project) == "note"
    (project / "feed").write_text("1\n\x0c2\n\n4\n")  # the lines that editors count
    assert content("@feed:2-3", project) == "\x0c2\n"
    assert content("@feed:3", project) == ""
    assert content("@feed:5", project) == "(no such lines)"
    (picture,) = mentions("@picture.png:3", project)
    assert isinstance(load_mention(picture), Image)
    (project / "empty").touch()
    with pytest.raises(PartValidationError, match="empty"):
        load_mention(mentions("@empty", project)[0])


def test_what_may_never_end_or_no_model_can_read_is_refused(project: Path) -> None:
    os.mkfifo(project / "pipe")
    for name in ("pipe", "/dev/zero"):
        with pytest.raises(PartValidationError, match="neither a file nor a directory"):
            load_mention(mentions(f"@{name}", project)[0])
    (project / "large.txt").write_text("line\n" * 1_000_000)
    with pytest.raises(PartValidationError, match="5 MB are more than a model can read"):
        load_mention(mentions("@large.txt", project)[0])
    assert content("@large.txt:999999-1000009", project) == "line\nline"


def test_names_that_are_not_utf_8_are_found_as_they_are_shown(project: Path) -> None:
    (project / "caf\udce9.txt").write_text("au lait\n")
    assert completions("caf", project) == ["caf\ufffd.txt"]
    assert content("@caf\ufffd.txt", project) == "au lait\n"
    assert "caf\ufffd.txt" in content("@.", project)
    (project / "caf\udcea.txt").touch()
    assert mentions("@caf\ufffd.txt", project) == []  # one of two
    assert mentions("@no\ufffd.txt", project) == []


def test_a_large_directory_is_cut(project: Path) -> None:
    for number in range(501):
        (project / "src" / f"{number}").touch()
    assert content("@src/", project).endswith("[2 more]")


def test_the_output_of_a_command_becomes_a_part() -> None:
    part = command_output_part("git\nstatus", "")
    assert isinstance(part, FileRef)
    assert (part.path, part.data) == ("$ git status", b"(no output)")


def test_paths_are_completed(project: Path) -> None:
    assert completions("", project) == ["my notes.txt", "picture.png", "src/"]
    assert completions("S", project) == ["src/"]
    assert completions("src/", project) == ["src/app.py"]
    assert completions(".h", project) == [".hidden"]
    assert completions("nowhere/x", project) == []
    assert completions("picture.png/", project) == []
    assert completions("ap", project) == ["src/app.py"]  # subdirectories are searched too
    assert completions("a", project) == []
    assert f"{project}/src/" in completions(f"{project}/s", project)


def test_dropped_files_become_mentions(project: Path) -> None:
    assert dropped_mentions(f"{project}/src/app.py ", project) == "@src/app.py"
    assert (
        dropped_mentions(f"'{project}/my notes.txt' {project}/picture.png", project) == '@"my notes.txt" @picture.png'
    )
    assert dropped_mentions(f"file://{project}/picture.png", project.parent / "x") == f"@{project}/picture.png"
    assert dropped_mentions(f"{project}/my\\ notes.txt", project) == '@"my notes.txt"'
    for text in ("", "hello", "a/b", f"{project}/nothing", "it's", f"see {project}/src", f"{project}\n/src"):
        assert dropped_mentions(text, project) is None
    assert dropped_mentions(f"file://{project}/my%20notes.txt", project) == '@"my notes.txt"'
    assert as_mention("a b") == '@"a b"'
    assert as_mention('a "b"') == "@'a \"b\"'"
    (project / 'a "b"').write_text("quoted\n")
    assert names(as_mention('a "b"'), project) == ['a "b"']


def test_entries_that_cannot_be_looked_at_are_offered_as_files(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory may allow its names to be listed and nothing else."""
    look = os.stat

    def refuse(path: Any, *arguments: Any, **options: Any) -> os.stat_result:
        if isinstance(path, str | os.PathLike) and Path(path).parent == project / "src":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return look(path, *arguments, **options)

    monkeypatch.setattr(os, "stat", refuse)
    assert completions("src/", project) == ["src/app.py"]
    (mention,) = mentions("@src", project)
    part = load_mention(mention)
    assert isinstance(part, FileRef)
    assert part.data == b"app.py"
