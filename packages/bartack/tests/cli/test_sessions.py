"""`bartack sessions` and `bartack show` on real stores, in their own process and in this one."""

import asyncio
import json
import os
import pty
import re
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bartack.cli.entry import run
from bartack.nouns import wire
from bartack.nouns.entries import Redaction, SessionHeader
from bartack.nouns.messages import assistant, tool_message, user
from bartack.nouns.parts import Thinking, ToolCall, ToolResult
from bartack.store import SessionStore, next_entries, open_store
from bartack.store.checksums import split_checksum
from tests.sample_session import SESSION

EVIL = "\x1b[31mred\x1b[0m\n\u202etitle [bold]x[/]"
CODE = "if é:\n    \x1b[1mpass\x9b0m\u202e"
Bartack = Callable[..., tuple[int, str, str]]


@pytest.fixture(params=["sqlite", "jsonl"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store with the complete session "s" and the newer session "t", which has an open call and a redaction."""
    place = f"{request.param}:{tmp_path / 'store'}"
    asyncio.run(with_store(place, fill))
    return place


@pytest.fixture
def one_store(tmp_path: Path) -> str:
    """The same in SQLite, for tests that do not depend on the store."""
    place = f"sqlite:{tmp_path / 'one.db'}"
    asyncio.run(with_store(place, fill))
    return place


async def with_store(place: str, work: Callable[[SessionStore], Any]) -> Any:
    store = await open_store(place)
    try:
        return await work(store)
    finally:
        await store.close()


async def fill(store: SessionStore) -> None:
    await store.append("s", SESSION, None)
    await store.create_session("t", SessionHeader(title=EVIL))
    tail = await store.tail_of("t")
    facts = [user("it rains cats and dogs"), user("the secret"), assistant(ToolCall("c", "clock", {}))]
    entries = next_entries("t", tail, facts, store.environment)
    await store.append("t", entries, tail.entry_id)
    last = await store.tail_of("t")
    await store.append(
        "t", next_entries("t", last, [Redaction(entry_id=entries[1].id)], store.environment), last.entry_id
    )


def entries_of(place: str, session_id: str) -> list[bytes]:
    async def read(store: SessionStore) -> list[bytes]:
        return list((await store.entries(session_id)).texts)

    texts: list[bytes] = asyncio.run(with_store(place, read))
    return texts


@pytest.fixture
def bartack(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, store: str) -> Bartack:
    """`bartack(words...)` on the store, in this process: exit code, stdout, stderr."""
    monkeypatch.setenv("BARTACK_STORE", store)

    def call(*words: str) -> tuple[int, str, str]:
        try:
            code = run(words)
        except SystemExit as leaving:
            code = int(leaving.code or 0)
        captured = capfd.readouterr()
        return code, captured.out, captured.err

    return call


def bartack_process(*words: str, stdin: bytes | None = None, **variables: str) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(
        [sys.executable, "-m", "bartack.cli", *words],
        input=stdin,
        env=os.environ | variables,
        capture_output=True,
        check=False,
        timeout=300,
    )


async def add_code(store: SessionStore) -> None:
    """A session with indented text and control characters."""
    await store.create_session("code", SessionHeader(title="é"))
    tail = await store.tail_of("code")
    facts = [
        user(CODE),
        assistant(Thinking(CODE), ToolCall("c", "clock", {"a": CODE})),
        tool_message(ToolResult("c", CODE)),
    ]
    await store.append("code", next_entries("code", tail, facts, store.environment), tail.entry_id)


# -- list, show, search


def test_list_prints_one_line_per_session_newest_first(bartack: Bartack) -> None:
    code, out, err = bartack("sessions", "list")
    rows = [line.split("\t") for line in out.splitlines()]
    assert (code, err) == (0, "")
    assert [row[0] for row in rows] == ["t", "s"]
    assert rows[1][1:3] == ["Weather", "13"]
    assert rows[1][4:] == ["27", "$0.2500"]


def test_a_list_fits_into_80_columns_with_ids_that_are_enough(one_store: str) -> None:
    ids = [f"01a1e5d{n}-4a8a-7cab-83a0-d579ff475fb0" for n in range(2)]

    async def add(store: SessionStore) -> None:
        for id in ids:
            header = SessionHeader(title="A long title " * 5, metadata={"directory": "/a/long/path/to/the/project"})
            await store.create_session(id, header)

    asyncio.run(with_store(one_store, add))
    for columns in (60, 80, 120):
        code, screen = on_terminal(["sessions", "list", "--store", one_store], columns=columns)
        lines = re.sub(r"\x1b\[[0-9;]*m", "", screen).split("\r\n")
        assert code == 0
        assert len(lines) == 6  # the header, four sessions, and the end
        assert max(map(len, lines)) <= columns
        assert any("…" in line for line in lines)
    assert "project" in screen
    code, screen = on_terminal(["sessions", "show", ids[0], "--store", one_store])
    assert (code, ids[0] in screen) == (0, True)


def test_a_session_is_renamed_and_found_by_its_new_title(bartack: Bartack, store: str) -> None:
    async def add(store: SessionStore) -> None:
        await store.create_session("abc", SessionHeader(title="First words"))

    asyncio.run(with_store(store, add))
    code, out, _ = bartack("sessions", "rename", "abc", "Retries of uploads")
    assert (code, out.partition(":")[0]) == (0, "session renamed")
    assert bartack("sessions", "show", "abc")[1].startswith("abc  Retries of uploads\n")
    assert "Retries of uploads" in bartack("sessions", "list")[1]
    assert "Retries of uploads" in bartack("sessions", "search", "retries")[1]
    code, _, err = bartack("sessions", "rename", "abc", "  ")
    assert code == 2
    assert "cannot be empty" in err


def test_a_session_is_named_by_the_start_of_its_id_and_deleted(bartack: Bartack, store: str) -> None:
    async def add(store: SessionStore) -> None:
        for id in ("abcdef-1", "abcdef-2"):
            await store.create_session(id)

    asyncio.run(with_store(store, add))
    code, _, err = bartack("sessions", "show", "abcdef")
    assert code == 1
    assert "Several sessions start with 'abcdef': abcdef-1, abcdef-2." in err
    assert bartack("sessions", "show", "abcdef-1")[0] == 0
    assert bartack("sessions", "delete", "abcdef-2", "--yes")[:2] == (0, "removed abcdef-2\n")
    assert bartack("sessions", "show", "abcd")[1].startswith("abcdef-1\n")
    assert bartack("sessions", "note", "abcd", "seen")[0] == 0
    assert bartack("show", "abcd")[0] == 0


def test_control_characters_of_stored_text_are_removed(bartack: Bartack) -> None:
    for words in (["sessions", "list"], ["sessions", "show", "t"], ["show", "t"]):
        _, out, _ = bartack(*words)
        assert "\x1b" not in out
        assert "\u202e" not in out
    assert "\tred title [bold]x[/]\t" in bartack("sessions", "list")[1]


def test_text_keeps_its_indentation(bartack: Bartack, store: str) -> None:
    asyncio.run(with_store(store, add_code))
    out = bartack("show", "code")[1]
    for start in ("", "(thinking) ", "[result] "):
        assert f"\n{start}if é:\n{start}    pass\n" in out


def test_control_characters_in_json_are_escaped(one_store: str) -> None:
    asyncio.run(with_store(one_store, add_code))
    for words in (["--as", "feed"], ["--as", "ledger"], ["--json"]):
        code, screen = on_terminal(["show", "code", *words, "--store", one_store])
        assert code == 0
        assert all(line.isprintable() for line in screen.split("\r\n"))
        assert "\\u009b" in screen
        assert CODE in texts_in(json.loads(screen))


def texts_in(value: Any) -> list[Any]:
    """Every leaf of a JSON tree."""
    if isinstance(value, dict | list):
        inner = value.values() if isinstance(value, dict) else value
        return [text for value in inner for text in texts_in(value)]
    return [value]


@pytest.mark.parametrize("words", [["show", "code"], ["sessions", "list"], ["sessions", "show", "code"]])
def test_characters_that_the_output_cannot_encode_become_question_marks(one_store: str, words: list[str]) -> None:
    asyncio.run(with_store(one_store, add_code))
    done = bartack_process(*words, "--store", one_store, PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"?" in done.stdout


def test_list_is_paged(bartack: Bartack) -> None:
    code, out, err = bartack("sessions", "list", "--limit", "1", "--json")
    page = json.loads(out)
    assert (code, [item["id"] for item in page["items"]], page["items"][0]["entries"]) == (0, ["t"], 5)
    second_page = json.loads(bartack("sessions", "list", "--cursor", page["cursor"], "--json")[1])
    assert ([item["id"] for item in second_page["items"]], second_page["cursor"]) == (["s"], None)
    assert "next page: --cursor '[" in bartack("sessions", "list", "--limit", "1")[2]
    assert bartack("sessions", "list", "--query", "lisbon")[1:] == ("", "no more sessions\n")
    assert json.loads(bartack("sessions", "list", "--query", "cats", "--json")[1])["items"][0]["id"] == "t"
    assert err == ""


def test_search_prints_the_matching_entries(bartack: Bartack) -> None:
    assert bartack("sessions", "search", "DOGS", "cats") == (0, "t\t2\tit rains cats and dogs\n", "")
    assert bartack("sessions", "search", "secret") == (0, "", "no matches\n")
    code, out, _ = bartack("sessions", "search", "rains", "--json", "--limit", "1")
    first = json.loads(out)
    assert (code, first["items"][0]["sessionId"], first["offset"]) == (0, "t", 1)
    second = json.loads(bartack("sessions", "search", "rains", "--json", "--limit", "1", "--offset", "1")[1])
    assert (second["items"][0]["sessionId"], second["offset"]) == ("s", None)
    assert "more results: --offset 1" in bartack("sessions", "search", "rains", "--limit", "1")[2]


def test_search_is_filtered_and_takes_phrases_and_beginnings(bartack: Bartack) -> None:
    def ids(*words: str) -> set[str]:
        return {item["sessionId"] for item in json.loads(bartack("sessions", "search", *words, "--json")[1])["items"]}

    assert ids("rains") == ids("rain*") == ids("rains", "--since", "2020-01-01") == {"s", "t"}
    assert ids("cats and") == ids('"cats and"') == {"t"}
    assert ids("and cats") == set()
    assert ids("rains", "--until", "2020-01-01") == ids("rains", "--errors") == set()
    assert ids("rains", "--with-tool", "nothing") == ids("rains", "--with-model", "nothing") == set()
    assert ids("rains", "--with-model", "claude") == {"s"}
    assert bartack("sessions", "search", "rains", "--since", "yesterday")[0] == 2


def test_sessions_show_prints_branches_usage_and_the_last_entries(bartack: Bartack) -> None:
    code, out, err = bartack("sessions", "show", "s", "--entries", "2")
    assert (code, err) == (0, "")
    assert out.startswith("s  Weather\n13 entries, 1 branch\n")
    assert "anthropic/claude\t1\t20\t7\t$0.2500\n" in out
    assert out.endswith("\tcompaction_summary\tThey talked about rain.\n")
    session = json.loads(bartack("sessions", "show", "t", "--json")[1])
    assert (session["session"]["id"], len(session["heads"]), len(session["entries"])) == ("t", 1, 5)
    assert "secret" not in json.dumps(session)


@pytest.mark.parametrize("view", ["ledger", "feed", "document"])
def test_show_prints_every_view_without_redacted_content(bartack: Bartack, view: str) -> None:
    code, out, err = bartack("show", "t", "--as", view)
    assert (code, err) == (0, "")
    assert (json.loads(out)["view"] if view == "ledger" else "rains") in out
    assert "secret" not in out
    assert "[redacted]" in out


def test_show_prints_the_conversation_as_text(bartack: Bartack) -> None:
    code, out, _ = bartack("show", "s")
    assert code == 0
    assert "-- user\nRain?\n[image image/png]\n[file notes.txt]\n-- assistant\n(thinking) Look.\nLooking.\n" in out
    assert '[call weather {"city":"Paris"}]\n' in out
    assert "[error] denied\n" in out
    assert "-- failed: busy\n" in out
    assert json.loads(bartack("show", "s", "--json")[1]) == json.loads(bartack("show", "s", "--as", "ledger")[1])
    assert bartack("show", "s", "--head", "e3")[1].endswith("[file notes.txt]\n")


# -- export and import


def test_import_restores_an_export_exactly(bartack: Bartack, store: str, tmp_path: Path) -> None:
    file = tmp_path / "s.jsonl"
    code, out, err = bartack("sessions", "export", "s", "--output", str(file))
    assert (code, out, err) == (0, "", "exported 13 entries of 1 session\n")
    lines = [split_checksum(line)[0] for line in file.read_bytes().splitlines()]
    assert lines == [wire.encode(entry) for entry in SESSION]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    for address in (f"sqlite:{tmp_path / 'new.db'}", f"jsonl:{tmp_path / 'new'}"):
        for _ in range(2):  # the second import changes nothing
            code, out, _ = bartack("sessions", "import", str(file), "--store", address, "--json")
            assert (code, json.loads(out)["entries"], json.loads(out)["sessions"]) == (0, 13, ["s"])
        assert entries_of(address, "s") == entries_of(store, "s")


def test_a_backup_is_restored_to_a_new_store(bartack: Bartack, store: str, tmp_path: Path) -> None:
    kind = store.partition(":")[0]
    code, _, err = bartack("sessions", "backup", str(tmp_path / "copy"))
    assert (code, err) == (0, f"backed up to {tmp_path / 'copy'}\n")
    address = f"{kind}:{tmp_path / 'new'}"
    code, out, _ = bartack("sessions", "restore", str(tmp_path / "copy"), "--store", address, "--json")
    assert (code, json.loads(out)["store"].endswith("new")) == (0, True)
    assert entries_of(address, "s") == entries_of(store, "s")
    assert entries_of(address, "t")[:-1] == entries_of(store, "t")  # its open call gets a result
    code, _, err = bartack("sessions", "restore", str(tmp_path / "copy"))
    assert (code, "already exists" in err) == (1, True)
    code, _, err = bartack("sessions", "restore", str(tmp_path / "none"), "--store", f"{kind}:{tmp_path / 'other'}")
    assert (code, "No such file" in err) == (1, True)


def test_a_damaged_store_is_salvaged_into_a_file_that_can_be_imported(
    bartack: Bartack, store: str, tmp_path: Path
) -> None:
    path = store.partition(":")[2]
    code, _, err = bartack("sessions", "salvage", path, "-o", str(tmp_path / "left.jsonl"))
    assert (code, err) == (0, "salvaged 18 entries of 2 sessions\n")
    copy = f"sqlite:{tmp_path / 'other.db'}"
    code, _, err = bartack("sessions", "import", str(tmp_path / "left.jsonl"), "--store", copy)
    assert code == 0, err
    assert entries_of(copy, "s") == entries_of(store, "s")


@pytest.mark.parametrize("content", [b"", b"nothing\n", b"SQLite format 3\0"])
def test_a_file_without_entries_is_not_salvaged(bartack: Bartack, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "damaged").write_bytes(content)
    for words in ([], ["--output", str(tmp_path / "salvaged")]):
        code, out, err = bartack("sessions", "salvage", str(tmp_path / "damaged"), *words)
        assert (code, out, "contains no entry that can be read" in err) == (1, "", True)
    assert not (tmp_path / "salvaged").exists()


def test_a_store_that_cannot_be_written_is_listed(
    bartack: Bartack, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Injected, because root may write anywhere."""
    commands = (["list"], ["search", "rain"], ["fsck"])
    before = [bartack("sessions", *command) for command in commands]
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert [bartack("sessions", *command) for command in commands] == before


def test_export_overwrites_a_file_only_with_force(bartack: Bartack, tmp_path: Path) -> None:
    file = tmp_path / "s.jsonl"
    file.write_text("mine")
    code, _, err = bartack("sessions", "export", "s", "-o", str(file))
    assert (code, file.read_text()) == (2, "mine")
    assert "--force to overwrite it" in " ".join(err.split())
    code, out, _ = bartack("sessions", "export", "--all", "-o", str(file), "--force", "--json")
    assert (code, sorted(json.loads(out)["sessions"]), json.loads(out)["entries"]) == (0, ["s", "t"], 18)
    assert "the secret" not in file.read_text(encoding="utf-8")


def test_a_failed_export_leaves_no_file(bartack: Bartack, tmp_path: Path) -> None:
    before = sorted(tmp_path.iterdir())
    code, _, err = bartack("sessions", "export", "s", "no", "-o", str(tmp_path / "out.jsonl"))
    assert (code, err.splitlines()[0]) == (1, "bartack: Session 'no' does not exist.")
    assert sorted(tmp_path.iterdir()) == before


def test_a_pipe_copies_a_store(store: str, tmp_path: Path) -> None:
    exported = bartack_process("sessions", "export", "--all", "--store", store)
    assert (exported.returncode, exported.stderr) == (0, b"")
    copy = f"sqlite:{tmp_path / 'other.db'}"
    imported = bartack_process("sessions", "import", stdin=exported.stdout, BARTACK_STORE=copy)
    assert (imported.returncode, imported.stderr) == (0, b"imported 18 entries of 2 sessions\n")
    assert entries_of(copy, "s") == entries_of(store, "s")


def test_an_invalid_line_is_named_and_nothing_is_imported(bartack: Bartack, tmp_path: Path) -> None:
    file = tmp_path / "bad.jsonl"
    file.write_bytes(wire.encode(SESSION[0]) + b"\n\n{torn")
    copy = f"sqlite:{tmp_path / 'other.db'}"
    code, out, err = bartack("sessions", "import", str(file), "--store", copy)
    assert (code, out) == (1, "")
    assert re.fullmatch(r"bartack: Line 3 is not an entry: .*\nhint: Nothing was imported\. .*\n", err)
    assert json.loads(bartack("sessions", "list", "--store", copy, "--json")[1])["items"] == []
    code, _, err = bartack("sessions", "import", str(tmp_path / "none.jsonl"))
    assert (code, "No such file" in err) == (1, True)


# -- checking and purging


def test_fsck_finds_and_repairs_by_appending(bartack: Bartack, store: str) -> None:
    assert bartack("sessions", "fsck", "s") == (0, "", "checked 1 session: no findings\n")
    code, out, err = bartack("sessions", "fsck")
    assert (code, out) == (1, "t\t4\tdangling_call\tcall 'c' has no result\t--repair\n")
    assert err == "checked 2 sessions: 1 finding\n"
    before = entries_of(store, "t")
    code, out, err = bartack("sessions", "fsck", "--repair")
    assert (code, out, err) == (0, "", "repaired t\nchecked 2 sessions: no findings\n")
    remaining = entries_of(store, "t")
    assert (remaining[:5], len(remaining)) == (before, 6)
    code, out, _ = bartack("sessions", "fsck", "--json")
    assert (code, json.loads(out)) == (0, {"sessions": 2, "live": [], "repaired": [], "findings": []})


@pytest.mark.parametrize("store", ["jsonl"], indirect=True)  # databases have no torn lines
@pytest.mark.usefixtures("store")
def test_fsck_sets_torn_bytes_aside(bartack: Bartack, tmp_path: Path) -> None:
    file = tmp_path / "store" / "s.jsonl"
    content = file.read_bytes()
    file.write_bytes(content + b'{"id":"half')
    code, out, _ = bartack("sessions", "fsck", "s", "--json")
    assert (code, [finding["fault"] for finding in json.loads(out)["findings"]]) == (1, ["torn"])
    assert bartack("sessions", "fsck", "s", "--repair")[0] == 0
    assert file.read_bytes() == content
    assert [path.read_bytes() for path in file.parent.glob("s.torn-*")] == [b'{"id":"half']


def test_purge_explains_itself_and_asks_for_confirmation(store: str) -> None:
    answers = [(b"n\n", 1, "nothing was removed"), (b"y\n", 0, "the new session is")]
    for answer, code, printed in answers:
        done = on_terminal(["sessions", "purge", "t", "--store", store], answer)
        assert done[0] == code
        assert "under a new id without the redacted content" in " ".join(done[1].split())
        assert printed in done[1]
    listed = json.loads(bartack_process("sessions", "list", "--store", store, "--json").stdout)
    assert sorted(item["id"] for item in listed["items"])[-1] == "s"
    folder = Path(store.partition(":")[2])
    files = [folder] if folder.is_file() else [path for path in folder.rglob("*") if path.is_file()]
    assert not any(b"the secret" in path.read_bytes() for path in files)


def test_purge_without_a_terminal_needs_yes(one_store: str) -> None:
    done = bartack_process("sessions", "purge", "t", "--store", one_store, stdin=b"")
    assert (done.returncode, b"pass --yes" in done.stderr) == (2, True)
    done = bartack_process("sessions", "purge", "t", "--everything", "--yes", "--json", "--store", one_store, stdin=b"")
    assert (done.returncode, json.loads(done.stdout)) == (0, {"purged": "t", "session": None})
    assert bartack_process("show", "t", "--store", one_store).returncode == 1


def test_purge_proves_that_no_file_contains_the_text(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    purge = ["sessions", "purge", "--yes", "--everything", "--store", store]
    done = bartack_process(*purge, "t", "--verify", "")
    assert (done.returncode, b"--verify needs a text" in done.stderr) == (2, True)
    history = tmp_path / "data" / "bartack" / "history"  # of the prompts in the chat
    history.parent.mkdir(parents=True)
    history.write_text("+tell me the secret\n")
    done = bartack_process(*purge, "t", "--verify", "the secret")
    assert (done.returncode, b"still contains the text" in done.stderr) == (1, True)
    assert done.stderr.count(b"still contains") == 1  # only the history
    history.unlink()
    done = bartack_process(*purge, "s", "--verify", "the secret")
    assert (done.returncode, b"no file contains the text" in done.stderr) == (0, True)


# -- errors


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["sessions", "show", "no"], 1, "Session 'no' does not exist."),
        (["show", "s", "--head", "no"], 1, "Entry 'no' does not exist"),
        (["show", "no"], 1, "Session 'no' does not exist."),
        (["sessions", "fsck", "no"], 1, "Session 'no' does not exist."),
        (["sessions", "purge", "no", "--yes"], 1, "Session 'no' does not exist."),
        (["sessions", "list", "--cursor", "x"], 1, "Invalid cursor"),
        (["sessions", "list", "--store", "no/such.db"], 1, "There is no store at no/such.db."),
        (["sessions", "list", "--store", "mysql://u:pw@h/d"], 1, 'Unknown store type "mysql://"'),
        (["sessions", "list", "--store", "jsonl:no"], 1, "There is no store at no."),
        (["sessions", "list", "--store", "postgresql://nobody@127.0.0.1:1/no"], 1, "PostgreSQL error while connecting"),
        (["sessions", "list", "--limit", "0"], 2, "--limit"),
        (["sessions", "export"], 2, "Usage"),
        (["sessions", "export", "s", "--all"], 2, "ame the sessions to export, or pass --all"),
        (["sessions", "wipe"], 2, "Unknown command"),
        (["show", "s", "--as", "pdf"], 2, "pdf"),
    ],
)
def test_an_error_is_one_line_and_a_hint(bartack: Bartack, words: list[str], code: int, text: str) -> None:
    status, out, err = bartack(*words)
    assert (status, text in out + err) == (code, True)
    assert "Traceback" not in err
    if text != "Usage":
        assert [line.partition(": ")[0] for line in err.splitlines()] == ["bartack", "hint"]
    if code == 1:
        assert ("--store" in err.splitlines()[1]) == ("--store" in words)
        assert not Path("no").exists()


@pytest.mark.parametrize("words", [["sessions", "list"], ["sessions", "purge", "s", "--yes"], ["sessions", "import"]])
def test_a_file_of_another_program_is_rejected_and_left_alone(
    bartack: Bartack, tmp_path: Path, words: list[str]
) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    file = folder / "notes.txt"
    file.write_text("mine, and for everybody to read")
    file.chmod(0o644)
    code, out, err = bartack(*words, "--store", str(file))
    assert (code, out, err.splitlines()[0]) == (1, "", f"bartack: {file} is not a SQLite database.")
    assert (file.read_text(), stat.S_IMODE(file.stat().st_mode)) == ("mine, and for everybody to read", 0o644)
    assert list(folder.iterdir()) == [file]


def test_debug_prints_a_traceback(one_store: str) -> None:
    done = bartack_process("--debug", "sessions", "show", "no", "--store", one_store)
    assert (done.returncode, b"Traceback" in done.stderr) == (1, True)


def test_the_default_store_is_in_the_users_data_folder(tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path / "data")}
    environment = {name: value for name, value in os.environ.items() if name != "BARTACK_STORE"} | home
    done = subprocess.run(
        [sys.executable, "-m", "bartack.cli", "sessions", "list"], env=environment, capture_output=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"no sessions\n")
    assert [path.name for path in tmp_path.rglob("sessions.db")] == ["sessions.db"]


# -- terminals


def on_terminal(words: list[str], typed: bytes = b"", columns: int = 100) -> tuple[int, str]:
    """The exit code, and everything that `bartack` prints on a terminal of this width."""
    controller, terminal = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "bartack.cli", *words],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        env=os.environ | {"COLUMNS": str(columns), "TERM": "xterm-256color"},
    )
    os.close(terminal)
    os.write(controller, typed)
    screen = b"".join(chunks(controller))
    os.close(controller)
    return process.wait(300), screen.decode()


def chunks(controller: int) -> Iterator[bytes]:
    while True:
        try:
            chunk = os.read(controller, 65536)
        except OSError:  # Linux raises it when the other end is closed
            return
        if not chunk:
            return
        yield chunk


@pytest.mark.parametrize("columns", [30, 160])
def test_a_terminal_of_any_width_gets_a_table(one_store: str, columns: int) -> None:
    code, screen = on_terminal(["sessions", "list", "--store", one_store], columns=columns)
    assert code == 0
    assert "\x1b[1m" in screen  # the header is bold
    plain = re.sub(r"\x1b\[[0-9;]*m", "", screen)
    assert "\x1b" not in plain
    assert max(len(line) for line in plain.splitlines()) <= columns
    assert "Weather" in plain
    assert ("cost" in plain) == (columns >= 80)


def test_no_color_is_respected(one_store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    _, screen = on_terminal(["sessions", "fsck", "--store", one_store])
    assert not re.search(r"\x1b\[(3|4)\d", screen)
    assert "dangling_call" in screen


def test_usage_prints_tokens_and_costs(bartack: Bartack) -> None:
    code, out, err = bartack("usage", "--by", "model")
    assert (code, err) == (0, "")
    assert out.splitlines()[0].split("\t")[:4] == ["anthropic/claude", "1", "1", "20"]
    document = json.loads(bartack("usage", "--json", "--agent", "bartack")[1])
    assert (document["by"], len(document["items"])) == ("day", 1)
    assert document["total"]["spend"] == document["items"][0]["spend"]
    assert bartack("usage", "--agent", "codex") == (0, "", "no usage\n")
    assert bartack("usage", "--by", "weather")[0] == 2
