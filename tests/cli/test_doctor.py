"""`bartack doctor`: what it finds, what it never shows, and that it changes nothing and never fails itself."""

import asyncio
import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bartack.cli import doctor_models
from bartack.cli.app import run
from bartack.cli.doctor_checks import Check, Probe, examine
from bartack.cli.settings import settings_file
from bartack.models.vendors import VENDORS
from bartack.models.weights import KnownModel, known_model
from bartack.nouns.messages import assistant, user
from bartack.nouns.parts import ToolCall
from bartack.store import SessionStore, next_entries, open_store
from bartack.store.address import ADDRESS_FORMS
from bartack.testing.event_writers import EVENT_WRITERS
from bartack.testing.faults import Scenario, Stall, scenarios
from bartack.testing.server import fault_server

SECTIONS = ["installation", "configuration", "keys", "models", "store", "terminal"]
KEY = "sk-ant-QWxsIHlvdXIga2V5cyBhcmUgYmVsb25nIHRvIHVz"
TINY = "smollm2-135m"
CACHE = os.environ.get("BARTACK_CACHE")  # of whoever runs the tests: the weights may be there
Doctor = Callable[..., tuple[int, dict[str, dict[str, Any]]]]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Nobody's folders, settings and keys."""
    folder = tmp_path / "home"
    folder.mkdir()
    for name in ("HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(folder))
    keys = {name for vendor in VENDORS.values() for name in vendor.key_names}
    for name in [
        name for name in os.environ if name in keys or name.startswith("BARTACK_") or name.endswith("_BASE_URL")
    ]:
        monkeypatch.delenv(name)
    settings_file.cache_clear()
    yield folder
    settings_file.cache_clear()


@pytest.fixture
def doctor(capfd: pytest.CaptureFixture[str]) -> Doctor:
    """`doctor(words...)` in this process: the exit code, and the checks by their names."""

    def call(*words: str) -> tuple[int, dict[str, dict[str, Any]]]:
        code = in_process("doctor", "--json", *words)
        captured = capfd.readouterr()
        assert captured.err == ""
        checks = json.loads(captured.out)["checks"]
        for check in checks:
            assert set(check) == {"section", "name", "state", "text", "hint"}
            assert check["state"] in {"ok", "note"} or check["hint"]
        assert code == (1 if any(check["state"] == "fault" for check in checks) else 0)
        assert list(dict.fromkeys(check["section"] for check in checks)) == SECTIONS
        return code, {check["name"]: check for check in checks}

    return call


def in_process(*words: str) -> int:
    try:
        return run(words)
    except SystemExit as leaving:
        return int(leaving.code or 0)


def process(*words: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "bartack.cli", *words],
        env=os.environ | variables,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


# -- a machine on which nothing was set


def test_a_fresh_machine_has_no_fault_and_stays_as_it_is(doctor: Doctor, home: Path) -> None:
    code, checks = doctor()
    assert code == 0
    assert list(home.iterdir()) == []
    assert checks["file"]["text"] == f"{home}/bartack/config.toml, not there, and not needed"
    assert checks["default model"]["text"] == "local, because no API key is set"
    assert checks["environment"]["text"] == "none of Bartack's variables is set"
    assert (checks["no key for"]["state"], "anthropic, openai" in checks["no key for"]["text"]) == ("note", True)
    assert checks["place"]["text"] == f"{home}/bartack/sessions.db"
    assert checks["sessions"]["text"] == "not there yet; the first session makes it"
    assert "--ask" in checks["not asked"]["hint"]


def test_elsewhere_than_on_a_terminal_a_check_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert in_process("doctor") == 0
    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert {len(row) for row in rows} == {5}
    assert list(dict.fromkeys(row[0] for row in rows)) == SECTIONS
    assert {row[2] for row in rows} <= {"ok", "note"}


# -- installation


def test_extras_are_told_with_their_versions(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("google.auth", reason="google-auth is not installed (bartack[vertex])")
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    monkeypatch.setitem(sys.modules, "platformdirs", None)
    monkeypatch.setenv("BARTACK_CONFIG", os.devnull)
    monkeypatch.setenv("BARTACK_CACHE", "cache")
    monkeypatch.setenv("BARTACK_STORE", "memory:")
    code, checks = doctor()
    assert (checks["extra postgres"]["state"], checks["extra postgres"]["text"]) == ("note", "not installed")
    assert checks["extra postgres"]["hint"] == "pip install 'bartack[postgres]'"
    assert re.fullmatch(
        r"typer [\d.]+, rich [\d.]+, prompt-toolkit [\d.]+; not installed: platformdirs", checks["extra cli"]["text"]
    )
    assert (code, checks["extra cli"]["state"]) == (1, "fault")
    assert re.fullmatch(r"google-auth [\d.]+", checks["extra vertex"]["text"])


# -- configuration


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("model = ", "is not TOML: Invalid value (at end of document)"),
        ("modell = 'local'", "is not right: Object contains unknown field `modell`"),
        ("thinking = 3", "is not right: Expected `bool`, got `int` - at `$.thinking`"),
    ],
)
def test_a_wrong_configuration_file_is_told_exactly(doctor: Doctor, home: Path, text: str, fault: str) -> None:
    (home / "bartack").mkdir()
    path = home / "bartack" / "config.toml"
    path.write_text(text)
    code, checks = doctor()
    assert (code, checks["file"]["state"]) == (1, "fault")
    assert checks["file"]["text"].startswith(f"the configuration file {path} {fault}")
    assert "BARTACK_CONFIG" in checks["file"]["hint"]
    assert checks["default model"]["state"] == checks["store"]["state"] == "note"  # one fault, told once


def test_what_the_file_and_the_environment_say(doctor: Doctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "my.toml"
    path.write_text("model = 'ollama:llama3'\nstore = 'memory:'\n")
    monkeypatch.setenv("BARTACK_CONFIG", str(path))
    monkeypatch.setenv("BARTACK_INSTRUCTIONS", "Be brief.")
    code, checks = doctor()
    assert (code, checks["file"]["text"]) == (0, f"{path}, says model, store")
    assert checks["BARTACK_CONFIG"]["text"] == str(path)
    assert checks["BARTACK_INSTRUCTIONS"]["text"] == "9 characters"
    assert checks["default model"]["text"] == f"ollama:llama3, because {path} says so"
    assert (checks["place"]["text"], checks["sessions"]["text"]) == ("memory:", "not kept")


def test_tools_that_bartack_does_not_have_are_noted(doctor: Doctor, home: Path) -> None:
    (home / "bartack").mkdir()
    path = home / "bartack" / "config.toml"
    path.write_text("[approval]\nread_file = 'always'\nraed_file = 'always'\n")
    code, checks = doctor()
    assert (code, checks["approval"]["state"], checks["approval"]["text"]) == (0, "note", "says something of raed_file")
    assert "read_file" in checks["approval"]["hint"]
    path.write_text("[approval]\nread_file = 'always'\n")
    settings_file.cache_clear()
    assert "approval" not in doctor()[1]


def test_settings_that_cannot_be_are_a_fault(doctor: Doctor, home: Path) -> None:
    (home / "bartack").mkdir()
    path = home / "bartack" / "config.toml"
    path.write_text("model = 'ollama:llama3'\n[model_settings]\napi_key = 'sk-0123456789'\n")
    code, checks = doctor()
    assert (code, checks["default model"]["state"]) == (1, "fault")
    assert "[model_settings] api_key cannot be set" in checks["default model"]["text"]
    assert str(path) in checks["default model"]["hint"]


def test_blank_variables_are_none(doctor: Doctor, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BARTACK_MODEL", " ")
    monkeypatch.setenv("BARTACK_STORE", " ")
    _, checks = doctor()
    assert checks["default model"]["text"] == "local, because no API key is set"
    assert checks["place"]["text"] == f"{home}/bartack/sessions.db"


def test_a_variable_that_names_no_store_hides_no_other_one(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BARTACK_STORE", "mysql://u:topsecret@h/d")
    monkeypatch.setenv("BARTACK_THINKING", "1")
    code, checks = doctor()
    assert (code, checks["store"]["text"]) == (
        1,
        f'Unknown store type "mysql://". Use {ADDRESS_FORMS}.',
    )
    assert (checks["BARTACK_STORE"]["text"], checks["BARTACK_THINKING"]["text"]) == ("not the place of a store", "1")


@pytest.mark.parametrize(
    ("name", "fault"), [("openia:gpt-5", "Unknown vendor 'openia'"), ("mistral:large", "MISTRAL_API_KEY is not set")]
)
def test_a_model_that_cannot_be_is_a_fault(
    doctor: Doctor, monkeypatch: pytest.MonkeyPatch, name: str, fault: str
) -> None:
    monkeypatch.setenv("BARTACK_MODEL", name)
    code, checks = doctor()
    assert (code, checks["default model"]["state"]) == (1, "fault")
    assert f"{name}, because BARTACK_MODEL says so, and that cannot be: {fault}" in checks["default model"]["text"]


# -- keys


def pieces(key: str, length: int = 6) -> set[str]:
    return {key[start : start + length] for start in range(len(key) - length + 1)}


def test_a_key_is_told_by_its_name_and_length_alone(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.setenv("MISTRAL_API_KEY", "")
    monkeypatch.setenv("GROQ_API_KEY", f"{KEY}\n")
    code, checks = doctor()
    assert code == 0
    assert checks["ANTHROPIC_API_KEY"]["text"] == f"anthropic: a key of {len(KEY)} characters"
    assert checks["OPENAI_API_KEY"]["text"] == "openai, openai-chat: a key of 4 characters"
    assert (checks["MISTRAL_API_KEY"]["state"], checks["MISTRAL_API_KEY"]["text"]) == ("note", "set, and empty")
    assert checks["GROQ_API_KEY"]["state"] == "note"
    assert checks["default model"]["text"].endswith("because ANTHROPIC_API_KEY is set")
    assert "anthropic" not in checks["no key for"]["text"].split(", ")
    assert "mistral" in checks["no key for"]["text"].split(", ")


@pytest.mark.parametrize("key", ["two words", "two\nlines", "schlüssel", "bell\x07"])
def test_a_key_that_none_can_be_is_a_fault(doctor: Doctor, monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    monkeypatch.setenv("COHERE_API_KEY", key)
    code, checks = doctor()
    assert (code, checks["COHERE_API_KEY"]["state"]) == (1, "fault")
    assert checks["COHERE_API_KEY"]["hint"] == "set COHERE_API_KEY anew, with the key alone"


async def test_no_part_of_a_key_is_ever_shown(tmp_path: Path) -> None:
    """Not by a vendor that repeats it, not by settings that hold it, in no form of the output."""
    body = json.dumps({"type": "error", "error": {"type": "authentication_error", "message": f"no such key: {KEY}"}})
    refusal = Scenario(
        name="a refusal",
        format="anthropic-messages",
        status=401,
        steps=(body.encode(),),
        outcome=scenarios()[0].outcome,
    )
    other = "0123456789abcdefghijklmnop"
    async with fault_server(refusal) as server:
        variables = {
            "ANTHROPIC_API_KEY": KEY,
            "ANTHROPIC_BASE_URL": server.base_url,
            "DEEPSEEK_API_KEY": f"{other}\u00e9",
            "BARTACK_MODEL": f"anthropic:{KEY}",
            "BARTACK_STORE": f"postgresql://me:{other}@127.0.0.1:1/db?password={other}",
            "BARTACK_CACHE": str(tmp_path),
        }
        for words in (["--ask"], ["--ask", "--json"], ["--ask", "-m", f"anthropic:{KEY}"]):
            done = await asyncio.to_thread(process, "doctor", *words, **variables)
            assert done.returncode == 1
            assert "[hidden]" in done.stdout
            shown = done.stdout + done.stderr
            assert not {piece for piece in pieces(KEY) | pieces(other) if piece in shown}
    assert server.requests[0].headers["x-api-key"] == KEY


# -- models


def a_good_answer() -> Scenario:
    words = EVENT_WRITERS["anthropic-messages"]
    steps = (words.start() + words.text("Hi\x1b[31m there!") + words.finish("stop"),)
    return Scenario(name="good", format="anthropic-messages", steps=steps, outcome=scenarios()[0].outcome)


async def test_a_model_that_answers_is_fine(doctor: Doctor, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async with fault_server(a_good_answer()) as server:
        monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.base_url)
        assert "not asked" in (await asyncio.to_thread(doctor))[1]
        assert server.requests == []  # nothing is sent without --ask
        code, checks = await asyncio.to_thread(doctor, "--ask")
        name = next(name for name in checks if name.startswith("anthropic:"))
        assert (code, checks[name]["state"]) == (0, "ok")
        assert re.fullmatch(r"'Hi\\x1b\[31m there!' in \d+\.\d s", checks[name]["text"])
        assert f"local:{known_model('qwen2.5-coder-0.5b').name}" in checks
        code, checks = await asyncio.to_thread(doctor, "--ask", "-m", "anthropic:a", "-m", "anthropic:b")
        assert (code, [name for name, check in checks.items() if check["section"] == "models"]) == (
            0,
            ["anthropic:a", "anthropic:b"],
        )
    assert len(server.requests) == 3
    assert all(json.loads(request.body)["max_tokens"] <= 16 for request in server.requests)


async def test_the_configured_model_is_asked_with_its_settings(
    doctor: Doctor, monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    (home / "bartack").mkdir()
    path = home / "bartack" / "config.toml"
    path.write_text("model = 'anthropic:mine'\n[model_settings]\nmax_tokens = 99\ntemperature = 0.5\n")
    async with fault_server(a_good_answer()) as server:
        monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.base_url)
        code, checks = await asyncio.to_thread(doctor, "--ask")
    assert (code, checks["anthropic:mine"]["state"]) == (0, "ok")
    bodies = [json.loads(request.body) for request in server.requests]
    assert sorted(body["model"] for body in bodies)[-1] == "mine"
    assert {(body["max_tokens"], body["temperature"]) for body in bodies} == {(99, 0.5)}


async def test_a_model_that_is_silent_is_not_waited_for_longer_than_the_limit(
    doctor: Doctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor_models, "LIMIT_S", 0.2)
    silent = Scenario(name="silent", format="anthropic-messages", steps=(Stall(60.0),), outcome=scenarios()[0].outcome)
    async with fault_server(silent) as server:
        monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.base_url)
        code, checks = await asyncio.to_thread(doctor, "--ask", "-m", "anthropic:a")
    assert (code, checks["anthropic:a"]["text"]) == (1, "no answer within 0 s")
    assert "network" in checks["anthropic:a"]["hint"]


async def test_all_models_are_asked_at_once(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_models, "LIMIT_S", 60.0)
    together = asyncio.Barrier(3)  # nobody is answered before everybody has asked
    (body,) = a_good_answer().steps
    assert isinstance(body, bytes)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        await together.wait()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n" + body)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
        monkeypatch.setenv("ANTHROPIC_BASE_URL", f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        names = ["anthropic:a", "anthropic:b", "anthropic:c"]
        code, checks = await asyncio.to_thread(doctor, "--ask", *(word for name in names for word in ("-m", name)))
    assert (code, {checks[name]["state"] for name in names}) == (0, {"ok"})


def test_a_model_that_cannot_be_reached_is_one_sentence_and_a_hint(
    doctor: Doctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OLLAMA_HOST", "127.0.0.1:1")
    code, checks = doctor("--ask", "-m", "ollama:llama3", "-m", "nobody:nothing")
    assert code == 1
    assert checks["ollama:llama3"]["text"].startswith("127.0.0.1: ")
    assert "network" in checks["ollama:llama3"]["hint"]
    assert "Unknown vendor 'nobody'" in checks["nobody:nothing"]["text"]


def test_vendors_whose_models_nobody_knows_are_not_asked(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", "0123456789abcdef")
    code, checks = doctor("--ask")
    assert (code, checks["azure"]["state"]) == (0, "note")
    assert checks["azure"]["hint"] == "bartack doctor --ask --model azure:MODEL"


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> KnownModel:
    """The tiny model is the local one, and its weights are not here."""
    monkeypatch.setenv("BARTACK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("BARTACK_LOCAL_MODEL", TINY)
    return known_model(TINY)


def test_weights_that_are_not_here_can_be_fetched(doctor: Doctor, tiny: KnownModel) -> None:
    code, checks = doctor("--ask")
    assert (code, checks[f"local:{TINY}"]["state"]) == (0, "note")
    assert checks[f"local:{TINY}"]["hint"] == f"bartack models pull {TINY} fetches it"
    code, checks = doctor("--ask", "-m", f"local:{TINY}")
    assert (code, checks[f"local:{TINY}"]["state"]) == (1, "fault")  # it was asked for


def test_weights_are_compared_with_their_size_and_digest(doctor: Doctor, tiny: KnownModel) -> None:
    path = tiny.path
    path.parent.mkdir(parents=True)
    path.write_bytes(b"GGUF")
    code, checks = doctor()
    assert (code, checks[f"local:{TINY}"]["text"]) == (1, f"{path} is damaged: 4 bytes, not {tiny.size}")
    with path.open("wb") as file:
        file.truncate(tiny.size)
    code, checks = doctor()
    assert (code, checks[TINY]["text"]) == (0, f"here, 98 MB: {path}")
    code, checks = doctor("--ask")
    assert (code, checks[f"local:{TINY}"]["text"]) == (1, f"{path} is damaged: its digest is wrong")
    assert checks[f"local:{TINY}"]["hint"] == f"bartack models remove {TINY} && bartack models pull {TINY}"


def test_the_local_model_really_answers(doctor: Doctor, tiny: KnownModel, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("xllamacpp", reason="xllamacpp is not installed (bartack[local])")
    if CACHE is None:
        monkeypatch.delenv("BARTACK_CACHE")
    else:
        monkeypatch.setenv("BARTACK_CACHE", CACHE)
    if not tiny.is_downloaded:
        pytest.skip(f"{TINY} is not in the cache; 'bartack models pull {TINY}' brings it")
    monkeypatch.setattr(doctor_models, "LIMIT_S", 300.0)  # a busy machine is slow, and not at fault
    code, checks = doctor("--ask")
    assert (code, checks[f"local:{TINY}"]["state"]) == (0, "ok")
    assert "98 MB, digest verified" in checks[TINY]["text"]


# -- the store


async def fill(store: SessionStore) -> None:
    for name in ("one", "two"):
        await store.create_session(name)
        tail = await store.tail_of(name)
        await store.append(name, next_entries(name, tail, [user("hi")], store.environment), tail.entry_id)


async def leave_a_call_open(store: SessionStore) -> None:
    tail = await store.tail_of("one")
    entries = next_entries("one", tail, [assistant(ToolCall("c", "clock", {}))], store.environment)
    await store.append("one", entries, tail.entry_id)


async def with_store(place: str, *works: Callable[[SessionStore], Any]) -> None:
    store = await open_store(place)
    for work in works:
        await work(store)
    await store.close()


@pytest.mark.parametrize("place", ["sqlite:{}/store", "jsonl:{}/store", "{}/store"])
def test_a_store_is_counted_and_checked(doctor: Doctor, tmp_path: Path, place: str) -> None:
    place = place.format(tmp_path)
    code, checks = doctor("--store", place)
    assert (code, checks["sessions"]["text"]) == (0, "not there yet; the first session makes it")
    assert not (tmp_path / "store").exists()
    asyncio.run(with_store(place, fill))
    code, checks = doctor("--store", place)
    assert (code, checks["sessions"]["text"], checks["health"]["text"]) == (0, "2", "nothing is damaged")
    asyncio.run(with_store(place, leave_a_call_open))
    code, checks = doctor("--store", place)
    assert (code, checks["health"]["state"]) == (0, "note")
    assert checks["health"]["text"] == "1 finding, the first: call 'c' has no result"
    assert "--repair" in checks["health"]["hint"]


def test_a_damaged_store_is_a_fault(doctor: Doctor, tmp_path: Path) -> None:
    place = f"jsonl:{tmp_path / 'store'}"
    asyncio.run(with_store(place, fill))
    (file,) = (tmp_path / "store").rglob("one.jsonl")
    first, *rest = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join([first, b"{not an entry}\n", *rest]))
    code, checks = doctor("--store", place)
    assert (code, checks["health"]["state"]) == (1, "fault")
    assert "bartack sessions fsck" in checks["health"]["hint"]


def test_places_where_no_store_can_be(doctor: Doctor, tmp_path: Path) -> None:
    notes = tmp_path / "notes.txt"
    notes.write_text("mine")
    before = sorted(tmp_path.iterdir())
    for place, fault in [
        (str(notes), "is not a SQLite database"),
        (f"jsonl:{notes}", "notes.txt"),
        ("postgresql://me:pw/with@127.0.0.1:1/db", "Invalid PostgreSQL address"),
        ("postgresql://me:top[x@127.0.0.1:1/db", "Invalid PostgreSQL address"),
        ("postgresql://me@127.0.0.1:1/db", "PostgreSQL, connecting"),
    ]:
        code, checks = doctor("--store", place)
        assert (code, checks["store"]["state"], fault in checks["store"]["text"]) == (1, "fault", True)
    assert (notes.read_text(), sorted(tmp_path.iterdir())) == ("mine", before)


@pytest.fixture
def server_place() -> Iterator[tuple[str, Callable[[], bool]]]:
    """The address of a store on the PostgreSQL server of the tests, and whether anything of it is there."""
    asyncpg = pytest.importorskip("asyncpg", reason="asyncpg is not installed (bartack[postgres])")
    from tests.store.postgres_server import SERVER, address, schema_of

    place = address("bartack doctor")
    schema = schema_of(place)

    async def ask(question: str) -> Any:
        connection = await asyncpg.connect(SERVER, timeout=10)
        try:
            return await connection.fetchval(question)
        finally:
            await connection.close()

    yield place, lambda: bool(asyncio.run(ask(f"SELECT count(*) FROM pg_namespace WHERE nspname = '{schema}'")))
    asyncio.run(ask(f"DROP SCHEMA IF EXISTS {schema} CASCADE"))


def test_a_server_is_looked_at_without_making_tables(
    doctor: Doctor, server_place: tuple[str, Callable[[], bool]]
) -> None:
    place, is_made = server_place
    code, checks = doctor("--store", place)
    assert (code, checks["sessions"]["text"]) == (0, "not there yet; the first session makes it")
    assert not is_made()
    asyncio.run(with_store(place, fill))
    code, checks = doctor("--store", place)
    assert (code, checks["sessions"]["text"], checks["health"]["text"]) == (0, "2", "nothing is damaged")
    assert checks["place"]["text"].startswith("postgresql://")


def test_an_empty_file_stays_empty(doctor: Doctor, tmp_path: Path) -> None:
    path = tmp_path / "empty.db"
    path.touch()
    code, checks = doctor("--store", str(path))
    assert (code, checks["sessions"]["text"]) == (0, "not there yet; the first session makes it")
    assert path.stat().st_size == 0


# -- the doctor itself


def test_whatever_a_probe_raises_is_a_fault() -> None:
    def look() -> Iterator[Check]:
        yield Check("store", "first", "ok", "fine")
        raise KeyError("no\nsuch\x1b[31mkey")

    found = list(examine(Probe("store", "second", look, "do this")))
    assert [(check.name, check.state) for check in found] == [("first", "ok"), ("second", "fault")]
    assert (found[1].text, found[1].hint) == ("KeyError: 'no\\nsuch\\x1b[31mkey'", "do this")


def test_an_output_that_has_not_every_letter_is_no_reason_to_fail(tmp_path: Path) -> None:
    folder = tmp_path / "schl\u00fcssel"
    done = process("doctor", BARTACK_CACHE=str(folder), PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, "")
    assert "schl?ssel" in done.stdout
    assert "terminal\tencoding\tnote\tascii" in done.stdout


@pytest.mark.parametrize(("columns", "no_color"), [(40, False), (120, True)])
def test_a_terminal_of_any_width_gets_tables(columns: int, no_color: bool) -> None:
    controller, terminal = pty.openpty()
    variables = {"COLUMNS": str(columns), "TERM": "xterm-256color", "MISTRAL_API_KEY": "two words"}
    child = subprocess.Popen(
        [sys.executable, "-m", "bartack.cli", "doctor"],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        env=os.environ | variables | ({"NO_COLOR": "1"} if no_color else {}),
    )
    os.close(terminal)
    shown = b"".join(chunks(controller)).decode()
    os.close(controller)
    assert child.wait(60) == 1
    assert bool(re.search(r"\x1b\[[0-9;]*3[0-9]m", shown)) is not no_color
    plain = re.sub(r"\x1b\[[0-9;]*m", "", shown)
    assert "\x1b" not in plain
    assert max(len(line.rstrip("\r\n")) for line in plain.splitlines()) <= columns
    assert re.search(r"^fault +MISTRAL", plain, re.MULTILINE)
    assert f"{columns} columns" in plain
    assert "two words" not in plain


def chunks(controller: int) -> Iterator[bytes]:
    while True:
        try:
            chunk = os.read(controller, 65536)
        except OSError:  # how Linux says that the other side is gone
            return
        if not chunk:
            return
        yield chunk
