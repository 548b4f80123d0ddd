"""`bartack doctor`: what it finds, what it never shows, and that it changes nothing."""

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

from bartack.app.settings import settings_file
from bartack.cli.entry import run
from bartack.models.vendors import VENDORS
from bartack.models.weights import KnownModel, known_model
from bartack.nouns.messages import assistant, user
from bartack.nouns.parts import ToolCall
from bartack.store import SessionStore, next_entries, open_store
from bartack.store.address import ADDRESS_FORMS
from bartack.testing.faults import EVENT_WRITERS, Scenario, Stall, scenarios
from bartack.testing.model_checks import fault_server
from bartack_code.doctor import models as doctor_models
from bartack_code.doctor.checks import Check, Probe, examine

SECTIONS = [
    "installation", "configuration", "commands", "keys", "models", "store", "mcp servers", "telemetry", "terminal",
]  # fmt: skip
KEY = "sk-ant-QWxsIHlvdXIga2V5cyBhcmUgYmVsb25nIHRvIHVz"
TINY = "smollm2-135m"
CACHE = os.environ.get("BARTACK_CACHE")  # the weights may already be there
Doctor = Callable[..., tuple[int, dict[str, dict[str, Any]]]]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Empty folders, no settings and no keys."""
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
        assert code == (1 if any(check["state"] == "error" for check in checks) else 0)
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
        timeout=300,
    )


# -- a fresh machine


def test_a_fresh_machine_has_no_errors_and_is_not_changed(doctor: Doctor, home: Path) -> None:
    code, checks = doctor()
    assert code == 0
    assert list(home.iterdir()) == []
    assert checks["file"]["text"] == f"{home}/bartack/config.toml: does not exist (optional)"
    assert checks["default model"]["text"] == "local (no API key is set)"
    assert checks["environment"]["text"] == "no BARTACK_ variables are set"
    assert (checks["no key for"]["state"], "anthropic, openai" in checks["no key for"]["text"]) == ("note", True)
    assert checks["location"]["text"] == f"{home}/bartack/sessions.db"
    assert checks["sessions"]["text"] == "none yet; the first session creates the store"
    assert "--ask" in checks["not asked"]["hint"]


def test_a_name_that_is_no_model_is_an_error_without_asking(doctor: Doctor) -> None:
    code, checks = doctor("--model", "gpt-5")
    assert code == 1
    assert "Did you mean openai:gpt-5?" in checks["gpt-5"]["text"]
    assert "not asked" not in checks


def test_without_a_terminal_each_check_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert in_process("doctor") == 0
    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert {len(row) for row in rows} == {5}
    assert list(dict.fromkeys(row[0] for row in rows)) == SECTIONS
    assert {row[2] for row in rows} <= {"ok", "note"}


# -- installation


def test_extras_are_shown_with_their_versions(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("google.auth", reason="google-auth is not installed (bartack[cloud])")
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    monkeypatch.setitem(sys.modules, "platformdirs", None)
    monkeypatch.setenv("BARTACK_CONFIG", os.devnull)
    monkeypatch.setenv("BARTACK_CACHE", "cache")
    monkeypatch.setenv("BARTACK_STORE", "memory:")
    code, checks = doctor()
    assert (checks["extra postgres"]["state"], checks["extra postgres"]["text"]) == ("note", "not installed")
    assert checks["extra postgres"]["hint"] == "Run: pip install 'bartack[postgres]'"
    cli_pattern = r"typer [\d.]+, rich [\d.]+, markdown-it-py [\d.]+, uvloop [\d.]+; not installed: platformdirs"
    assert re.fullmatch(cli_pattern, checks["extra cli"]["text"])
    assert (code, checks["extra cli"]["state"]) == (1, "error")
    assert re.fullmatch(r"botocore [\d.]+, google-auth [\d.]+", checks["extra cloud"]["text"])


def test_the_other_packages_are_shown_with_their_libraries(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bartack_server", None)
    _, checks = doctor()
    code_pattern = r"bartack-code [\d.]+, prompt-toolkit [\d.]+"
    assert re.fullmatch(code_pattern, checks["bartack-code"]["text"])
    assert (checks["bartack-server"]["state"], checks["bartack-server"]["text"]) == ("note", "not installed")
    assert checks["bartack-server"]["hint"] == "Run: pip install bartack-server"


# -- configuration


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("model = ", "is not valid TOML: Invalid value (at end of document)."),
        ("modell = 'local'", "has an unknown setting 'modell'."),
        ("thinking = 3", "is invalid: Expected `bool`, got `int` - at `$.thinking`."),
    ],
)
def test_an_invalid_configuration_file_is_reported_once(doctor: Doctor, home: Path, text: str, error: str) -> None:
    (home / "bartack").mkdir()
    path = home / "bartack" / "config.toml"
    path.write_text(text)
    code, checks = doctor()
    assert (code, checks["file"]["state"]) == (1, "error")
    assert checks["file"]["text"].startswith(f"The configuration file {path} {error}")
    assert "BARTACK_CONFIG" in checks["file"]["hint"]
    assert checks["default model"]["state"] == checks["store"]["state"] == "note"  # not reported twice


@pytest.mark.parametrize(
    ("chosen", "working", "state", "text"),
    [
        ("auto", ["bubblewrap", "landlock"], "ok", "bubblewrap (working: bubblewrap, landlock)"),
        ("landlock", ["bubblewrap", "landlock"], "ok", "landlock (working: bubblewrap, landlock)"),
        ("seatbelt", ["landlock"], "error", "seatbelt does not work here"),
        ("off", ["landlock"], "note", "turned off in the configuration"),
        ("auto", [], "note", "none works here; a chat asks about every command"),
    ],
)
def test_the_active_sandbox_is_named(
    doctor: Doctor,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    chosen: str,
    working: list[str],
    state: str,
    text: str,
) -> None:
    (home / "bartack").mkdir()
    (home / "bartack" / "config.toml").write_text(f'[commands]\nsandbox = "{chosen}"')
    monkeypatch.setattr("bartack_code.doctor.checks.available_sandboxes", lambda: working)
    sandbox = doctor()[1]["sandbox"]
    assert (sandbox["state"], sandbox["text"]) == (state, text)


def test_the_file_and_the_environment_are_shown(
    doctor: Doctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "my.toml"
    path.write_text("model = 'ollama:llama3'\nstore = 'memory:'\n")
    monkeypatch.setenv("BARTACK_CONFIG", str(path))
    monkeypatch.setenv("BARTACK_INSTRUCTIONS", "Be brief.")
    code, checks = doctor()
    assert (code, checks["file"]["text"]) == (0, f"{path}: sets model, store")
    assert checks["BARTACK_CONFIG"]["text"] == str(path)
    assert checks["BARTACK_INSTRUCTIONS"]["text"] == "9 characters"
    assert checks["default model"]["text"] == f"ollama:llama3 (from {path})"
    assert (checks["location"]["text"], checks["sessions"]["text"]) == ("memory:", "not kept")


def test_unknown_tools_in_the_file_are_noted(doctor: Doctor, home: Path) -> None:
    (home / "bartack").mkdir()
    path = home / "bartack" / "config.toml"
    path.write_text("[approval]\nread_file = 'always'\nraed_file = 'always'\n")
    code, checks = doctor()
    assert (code, checks["approval"]["state"]) == (0, "note")
    assert checks["approval"]["text"] == "[approval] names unknown tools: raed_file"
    assert "read_file" in checks["approval"]["hint"]
    path.write_text("[approval]\nread_file = 'always'\n")
    settings_file.cache_clear()
    assert "approval" not in doctor()[1]


def test_forbidden_model_settings_are_an_error(doctor: Doctor, home: Path) -> None:
    (home / "bartack").mkdir()
    path = home / "bartack" / "config.toml"
    path.write_text("model = 'ollama:llama3'\n[model_settings]\napi_key = 'sk-0123456789'\n")
    code, checks = doctor()
    assert (code, checks["default model"]["state"]) == (1, "error")
    assert "[model_settings] api_key cannot be set" in checks["default model"]["text"]
    assert str(path) in checks["default model"]["hint"]


def test_blank_variables_count_as_not_set(doctor: Doctor, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BARTACK_MODEL", " ")
    monkeypatch.setenv("BARTACK_STORE", " ")
    _, checks = doctor()
    assert checks["default model"]["text"] == "local (no API key is set)"
    assert checks["location"]["text"] == f"{home}/bartack/sessions.db"


def test_an_invalid_store_address_does_not_hide_other_variables(
    doctor: Doctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BARTACK_STORE", "mysql://u:topsecret@h/d")
    monkeypatch.setenv("BARTACK_THINKING", "1")
    code, checks = doctor()
    assert (code, checks["store"]["text"]) == (1, f'Unknown store type "mysql://". Use {ADDRESS_FORMS}.')
    assert (checks["BARTACK_STORE"]["text"], checks["BARTACK_THINKING"]["text"]) == ("not a valid store address", "1")


@pytest.mark.parametrize(
    ("name", "problem"), [("openia:gpt-5", "Unknown vendor 'openia'"), ("mistral:large", "MISTRAL_API_KEY is not set")]
)
def test_a_model_that_cannot_be_connected_is_an_error(
    doctor: Doctor, monkeypatch: pytest.MonkeyPatch, name: str, problem: str
) -> None:
    monkeypatch.setenv("BARTACK_MODEL", name)
    code, checks = doctor()
    assert (code, checks["default model"]["state"]) == (1, "error")
    assert f"{name} (from BARTACK_MODEL): {problem}" in checks["default model"]["text"]


# -- keys


def pieces(key: str, length: int = 6) -> set[str]:
    return {key[start : start + length] for start in range(len(key) - length + 1)}


def test_of_a_key_only_name_and_length_are_shown(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.setenv("MISTRAL_API_KEY", "")
    monkeypatch.setenv("GROQ_API_KEY", f"{KEY}\n")
    code, checks = doctor()
    assert code == 0
    assert checks["ANTHROPIC_API_KEY"]["text"] == f"anthropic: {len(KEY)} characters"
    assert checks["OPENAI_API_KEY"]["text"] == "openai, openai-chat: 4 characters"
    assert (checks["MISTRAL_API_KEY"]["state"], checks["MISTRAL_API_KEY"]["text"]) == ("note", "set but empty")
    assert checks["GROQ_API_KEY"]["state"] == "note"
    assert checks["default model"]["text"].endswith("(ANTHROPIC_API_KEY is set)")
    assert "anthropic" not in checks["no key for"]["text"].split(", ")
    assert "mistral" in checks["no key for"]["text"].split(", ")


@pytest.mark.parametrize("key", ["two words", "two\nlines", "schlüssel", "bell\x07"])
def test_a_key_with_invalid_characters_is_an_error(doctor: Doctor, monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    monkeypatch.setenv("COHERE_API_KEY", key)
    code, checks = doctor()
    assert (code, checks["COHERE_API_KEY"]["state"]) == (1, "error")
    assert checks["COHERE_API_KEY"]["hint"] == "Set COHERE_API_KEY again, to the key alone."


async def test_no_part_of_a_key_is_ever_shown(tmp_path: Path) -> None:
    """Even if a vendor repeats it in an error, or a setting contains it, and in every output format."""
    body = json.dumps({"type": "error", "error": {"type": "authentication_error", "message": f"no such key: {KEY}"}})
    refusal = Scenario(
        name="a refusal",
        format="anthropic-messages",
        status=401,
        steps=(body.encode(),),
        outcome=scenarios()[0].outcome,
    )
    second_key = "0123456789abcdefghijklmnop"
    async with fault_server(refusal) as server:
        variables = {
            "ANTHROPIC_API_KEY": KEY,
            "ANTHROPIC_BASE_URL": server.base_url,
            "DEEPSEEK_API_KEY": f"{second_key}\u00e9",
            "BARTACK_MODEL": f"anthropic:{KEY}",
            "BARTACK_STORE": f"postgresql://me:{second_key}@127.0.0.1:1/db?password={second_key}",
            "BARTACK_CACHE": str(tmp_path),
        }
        for words in (["--ask"], ["--ask", "--json"], ["--ask", "-m", f"anthropic:{KEY}"]):
            done = await asyncio.to_thread(process, "doctor", *words, **variables)
            assert done.returncode == 1
            assert "[hidden]" in done.stdout
            printed = done.stdout + done.stderr
            assert not {piece for piece in pieces(KEY) | pieces(second_key) if piece in printed}
    assert server.requests[0].headers["x-api-key"] == KEY


# -- models


def a_good_answer() -> Scenario:
    words = EVENT_WRITERS["anthropic-messages"]
    steps = (words.start() + words.text("Hi\x1b[31m there!") + words.finish("stop"),)
    return Scenario(name="good", format="anthropic-messages", steps=steps, outcome=scenarios()[0].outcome)


async def test_a_model_that_answers_is_ok(doctor: Doctor, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
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


async def test_a_model_that_does_not_answer_times_out(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_models, "LIMIT_S", 0.2)
    silent = Scenario(name="silent", format="anthropic-messages", steps=(Stall(600.0),), outcome=scenarios()[0].outcome)
    async with fault_server(silent) as server:
        monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.base_url)
        code, checks = await asyncio.to_thread(doctor, "--ask", "-m", "anthropic:a")
    assert (code, checks["anthropic:a"]["text"]) == (1, "no answer within 0 s")
    assert "network" in checks["anthropic:a"]["hint"]


async def test_all_models_are_asked_concurrently(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_models, "LIMIT_S", 300.0)
    together = asyncio.Barrier(3)  # no answer is sent before all requests have arrived
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


def test_a_model_that_cannot_be_reached_is_an_error_with_a_hint(
    doctor: Doctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OLLAMA_HOST", "127.0.0.1:1")
    code, checks = doctor("--ask", "-m", "ollama:llama3", "-m", "nobody:nothing")
    assert code == 1
    assert checks["ollama:llama3"]["text"].startswith("127.0.0.1: ")
    assert "network" in checks["ollama:llama3"]["hint"]
    assert "Unknown vendor 'nobody'" in checks["nobody:nothing"]["text"]


def test_vendors_without_a_default_model_are_not_asked(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", "0123456789abcdef")
    code, checks = doctor("--ask")
    assert (code, checks["azure"]["state"]) == (0, "note")
    assert checks["azure"]["hint"] == "Run 'bartack doctor --ask --model azure:MODEL'."


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> KnownModel:
    """The tiny model is the local one, and not downloaded."""
    monkeypatch.setenv("BARTACK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("BARTACK_LOCAL_MODEL", TINY)
    return known_model(TINY)


def test_missing_weights_are_reported_with_the_command_to_get_them(doctor: Doctor, tiny: KnownModel) -> None:
    code, checks = doctor("--ask")
    assert (code, checks[f"local:{TINY}"]["state"]) == (0, "note")
    assert checks[f"local:{TINY}"]["hint"] == f"Run 'bartack models pull {TINY}'."
    code, checks = doctor("--ask", "-m", f"local:{TINY}")
    assert (code, checks[f"local:{TINY}"]["state"]) == (1, "error")  # it was named


def test_weights_are_checked_by_size_and_checksum(doctor: Doctor, tiny: KnownModel) -> None:
    path = tiny.path
    path.parent.mkdir(parents=True)
    path.write_bytes(b"GGUF")
    code, checks = doctor()
    assert (code, checks[f"local:{TINY}"]["text"]) == (1, f"{path} is damaged: 4 bytes instead of {tiny.size}")
    with path.open("wb") as file:
        file.truncate(tiny.size)
    code, checks = doctor()
    assert (code, checks[TINY]["text"]) == (0, f"{path} (98 MB)")
    code, checks = doctor("--ask")
    assert (code, checks[f"local:{TINY}"]["text"]) == (1, f"{path} is damaged: wrong checksum")
    assert checks[f"local:{TINY}"]["hint"] == f"Run 'bartack models remove {TINY} && bartack models pull {TINY}'."


def test_the_local_model_answers(doctor: Doctor, tiny: KnownModel, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("xllamacpp", reason="xllamacpp is not installed (bartack[local])")
    if CACHE is None:
        monkeypatch.delenv("BARTACK_CACHE")
    else:
        monkeypatch.setenv("BARTACK_CACHE", CACHE)
    if not tiny.is_downloaded:
        pytest.skip(f"{TINY} is not downloaded; run 'bartack models pull {TINY}'")
    monkeypatch.setattr(doctor_models, "LIMIT_S", 300.0)  # a busy machine is slow
    code, checks = doctor("--ask")
    assert (code, checks[f"local:{TINY}"]["state"]) == (0, "ok")
    assert "98 MB, checksum verified" in checks[TINY]["text"]


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
def test_the_sessions_of_a_store_are_counted_and_checked(doctor: Doctor, tmp_path: Path, place: str) -> None:
    place = place.format(tmp_path)
    code, checks = doctor("--store", place)
    assert (code, checks["sessions"]["text"]) == (0, "none yet; the first session creates the store")
    assert not (tmp_path / "store").exists()
    asyncio.run(with_store(place, fill))
    code, checks = doctor("--store", place)
    assert (code, checks["sessions"]["text"], checks["health"]["text"]) == (0, "2", "no damage found")
    asyncio.run(with_store(place, leave_a_call_open))
    code, checks = doctor("--store", place)
    assert (code, checks["health"]["state"]) == (0, "note")
    assert checks["health"]["text"] == "1 finding, the first: call 'c' has no result"
    assert "--repair" in checks["health"]["hint"]


def test_a_damaged_store_is_an_error(doctor: Doctor, tmp_path: Path) -> None:
    place = f"jsonl:{tmp_path / 'store'}"
    asyncio.run(with_store(place, fill))
    (file,) = (tmp_path / "store").rglob("one.jsonl")
    first, *further_lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join([first, b"{not an entry}\n", *further_lines]))
    code, checks = doctor("--store", place)
    assert (code, checks["health"]["state"]) == (1, "error")
    assert "bartack sessions fsck" in checks["health"]["hint"]


def test_invalid_stores_are_errors_and_left_alone(doctor: Doctor, tmp_path: Path) -> None:
    notes = tmp_path / "notes.txt"
    notes.write_text("mine")
    before = sorted(tmp_path.iterdir())
    for place, fault in [
        (str(notes), "is not a SQLite database"),
        (f"jsonl:{notes}", "notes.txt"),
        ("postgresql://me:pw/with@127.0.0.1:1/db", "Invalid PostgreSQL address"),
        ("postgresql://me:top[x@127.0.0.1:1/db", "Invalid PostgreSQL address"),
        ("postgresql://me@127.0.0.1:1/db", "PostgreSQL error while connecting"),
    ]:
        code, checks = doctor("--store", place)
        assert (code, checks["store"]["state"], fault in checks["store"]["text"]) == (1, "error", True)
    assert (notes.read_text(), sorted(tmp_path.iterdir())) == ("mine", before)


@pytest.fixture
def server_store() -> Iterator[tuple[str, Callable[[], bool]]]:
    """The address of a store on the PostgreSQL server of the tests, and whether its schema exists."""
    asyncpg = pytest.importorskip("asyncpg", reason="asyncpg is not installed (bartack[postgres])")
    from tests.store.postgres_server import SERVER, address, schema_of

    place = address("bartack doctor")
    schema = schema_of(place)

    async def ask(question: str) -> Any:
        connection = await asyncpg.connect(SERVER, timeout=120)
        try:
            return await connection.fetchval(question)
        finally:
            await connection.close()

    yield place, lambda: bool(asyncio.run(ask(f"SELECT count(*) FROM pg_namespace WHERE nspname = '{schema}'")))
    asyncio.run(ask(f"DROP SCHEMA IF EXISTS {schema} CASCADE"))


def test_a_database_is_checked_without_creating_tables(
    doctor: Doctor, server_store: tuple[str, Callable[[], bool]]
) -> None:
    place, is_made = server_store
    code, checks = doctor("--store", place)
    assert (code, checks["sessions"]["text"]) == (0, "none yet; the first session creates the store")
    assert not is_made()
    asyncio.run(with_store(place, fill))
    code, checks = doctor("--store", place)
    assert (code, checks["sessions"]["text"], checks["health"]["text"]) == (0, "2", "no damage found")
    assert checks["location"]["text"].startswith("postgresql://")


def test_an_empty_file_is_not_changed(doctor: Doctor, tmp_path: Path) -> None:
    path = tmp_path / "empty.db"
    path.touch()
    code, checks = doctor("--store", str(path))
    assert (code, checks["sessions"]["text"]) == (0, "none yet; the first session creates the store")
    assert path.stat().st_size == 0


# -- the command


def test_any_exception_of_a_probe_is_an_error() -> None:
    def look() -> Iterator[Check]:
        yield Check("first", "ok", "fine")
        raise KeyError("no\nsuch\x1b[31mkey")

    checks = list(examine(Probe("store", "second", look, "do this")))
    assert [(check.name, check.state) for check in checks] == [("first", "ok"), ("second", "error")]
    assert (checks[1].text, checks[1].hint) == ("KeyError: 'no\\nsuch\\x1b[31mkey'", "do this")


def test_characters_that_the_output_cannot_encode_become_question_marks(tmp_path: Path) -> None:
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
    screen = b"".join(chunks(controller)).decode()
    os.close(controller)
    assert child.wait(300) == 1
    assert bool(re.search(r"\x1b\[[0-9;]*3[0-9]m", screen)) is not no_color
    plain = re.sub(r"\x1b\[[0-9;]*m", "", screen)
    assert "\x1b" not in plain
    assert max(len(line.rstrip("\r\n")) for line in plain.splitlines()) <= columns
    assert re.search(r"^error +MISTRAL", plain, re.MULTILINE)
    assert f"{columns} columns" in plain
    assert "two words" not in plain


def chunks(controller: int) -> Iterator[bytes]:
    while True:
        try:
            chunk = os.read(controller, 65536)
        except OSError:  # Linux raises it when the other end is closed
            return
        if not chunk:
            return
        yield chunk


def test_mcp_servers_are_checked_without_starting_them(
    home: Path, doctor: Doctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert doctor()[1]["servers"]["text"].startswith("none in ")
    monkeypatch.setenv("TOKEN", "a-secret")
    servers = {
        "good": {"command": sys.executable, "args": ["-c", "raise SystemExit"], "env": {"TOKEN": "${TOKEN}"}},
        "gone": {"command": "no-such-program"},
        "web": {"url": "https://127.0.0.1:1/mcp", "headers": {"Authorization": "Bearer ${UNSET_TOKEN}"}},
    }
    file = home / "bartack" / "mcp.json"
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps({"mcpServers": servers}))
    code, checks = doctor()
    assert code == 1
    assert {name: checks[name]["state"] for name in servers} == {"good": "ok", "gone": "error", "web": "error"}
    assert "no-such-program" in checks["gone"]["text"]
    assert "UNSET_TOKEN" in checks["web"]["text"]
    assert "a-secret" not in json.dumps(checks)
    file.write_text("{")
    assert doctor()[1]["servers"]["state"] == "error"
