"""`bartack gateway`: the key that is printed once works, and keys are managed on the command line."""

import asyncio
import json
import os
import signal
import stat
import subprocess
import sys
import tomllib
from pathlib import Path

import aiohttp
import pytest

from bartack.nouns.errors import ConfigError
from bartack_server.gateway.programs import PROGRAMS, settings_for, write_settings
from tests.gateway.serving import LIMIT_S

COMMAND = [sys.executable, "-m", "bartack.cli", "gateway"]


def environment(folder: Path) -> dict[str, str]:
    places = ("HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "BARTACK_CACHE")
    return {**os.environ, **dict.fromkeys(places, str(folder)), "BARTACK_STORE": "", "BARTACK_GATEWAY_KEY": ""}


def run(folder: Path, *words: str) -> tuple[int, str, str]:
    env = environment(folder)
    done = subprocess.run([*COMMAND, *words], capture_output=True, text=True, check=False, env=env, timeout=LIMIT_S)
    return done.returncode, done.stdout, done.stderr


async def test_the_first_start_prints_a_key_that_works_and_later_ones_do_not(tmp_path: Path) -> None:
    words = [*COMMAND, "--to", "local", "--port", "0"]
    for is_first in (True, False):
        process = await asyncio.create_subprocess_exec(*words, stdout=subprocess.PIPE, env=environment(tmp_path))
        try:
            assert process.stdout is not None
            async with asyncio.timeout(LIMIT_S), aiohttp.ClientSession() as http:
                url = (await process.stdout.readline()).decode().strip().removeprefix("Listening on ")
                if is_first:
                    key = (await process.stdout.readline()).decode().rpartition(" ")[2].strip()
                async with http.get(f"{url}/v1/models", headers={"authorization": f"Bearer {key}"}) as response:
                    assert [model["id"] for model in (await response.json())["data"]] == ["local"]
                process.send_signal(signal.SIGINT)
                assert await process.wait() == 0
                assert await process.stdout.read() == b""
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()


def test_keys_are_added_listed_and_revoked(tmp_path: Path) -> None:
    status, secret, _ = run(tmp_path, "keys", "add", "bob", "--model", "claude-*", "--day-usd", "3", "--days", "7")
    assert (status, secret.startswith("bt-")) == (0, True)
    [key] = json.loads(run(tmp_path, "keys", "list", "--json")[1])
    assert (key["name"], key["models"], key["day"]) == ("bob", "claude-*", "$3")
    assert secret.strip() not in json.dumps(key)
    assert "There is a gateway key named 'bob'" in run(tmp_path, "keys", "add", "bob")[2]
    assert run(tmp_path, "keys", "revoke", "bob")[0] == 0
    assert json.loads(run(tmp_path, "keys", "list", "--json")[1]) == []
    assert run(tmp_path, "keys", "revoke", "bob")[0] == 1


@pytest.mark.parametrize("program", PROGRAMS)
def test_settings_of_programs_have_the_address_and_the_key(program: str, tmp_path: Path) -> None:
    env = {**environment(tmp_path), "BARTACK_GATEWAY_KEY": "bt-key"}
    words = [*COMMAND, "env", program, "--url", "http://127.0.0.1:9/", "--model", "fast"]
    done = subprocess.run(words, capture_output=True, text=True, check=True, env=env, timeout=LIMIT_S)
    assert all(text in done.stdout for text in ("http://127.0.0.1:9", "bt-key", "fast"))
    assert "9//" not in done.stdout


@pytest.mark.parametrize("program", PROGRAMS)
def test_settings_are_added_to_those_of_a_program_once(program: str, tmp_path: Path) -> None:
    old = {
        "claude": '{"env": {"OTHER": "1"}, "theme": "dark"}',
        "codex": '# mine\nmodel = "old"\n[model_providers.bartack]\nname = "old"\n[other]\nmodel = "kept"\n',
        "opencode": '{"provider": {"mine": {}}, "theme": "dark"}',
        "pi": '{"providers": {"mine": {}}}',
    }.get(program, "OTHER=1\nOPENAI_API_KEY=old\nexport GEMINI_API_KEY=old\n")
    settings = settings_for(program, url="http://127.0.0.1:4748", key="bt-key", model="m")
    path = tmp_path / settings.path
    path.parent.mkdir(parents=True)
    path.write_text(old)
    for _ in range(2):
        assert write_settings(settings, tmp_path) == path
    text = path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    if program == "codex":
        table = tomllib.loads(text)
        assert (table["model"], table["model_provider"]) == ("m", "bartack")
        assert table["model_providers"]["bartack"]["name"] == "Bartack"
        assert (table["other"], text.count("# mine")) == ({"model": "kept"}, 1)
        return
    assert text.count("bt-key") == 1
    assert "old" not in text or program in ("gemini", "qwen")  # keys of the other one are not theirs
    if old.startswith("{"):
        assert set(json.loads(old)) <= set(json.loads(text))
        assert ("mine" in old) <= ("mine" in text)
    else:
        assert "OTHER=1\n" in text


def test_the_command_writes_settings_and_leaves_a_file_that_it_cannot_read_alone(tmp_path: Path) -> None:
    path = tmp_path / ".claude" / "settings.json"
    code, output, _ = run(tmp_path, "env", "claude", "--write")
    assert (code, output) == (0, f"Wrote {path}\n")
    path.write_text("// a comment\n{}")
    code, _, error = run(tmp_path, "env", "claude", "--write")
    assert (code, "cannot be changed" in error, path.read_text()) == (2, True, "// a comment\n{}")
    path.write_text("[]")
    with pytest.raises(ConfigError, match="not a JSON object"):
        write_settings(settings_for("claude", url="", key="", model=""), tmp_path)


def test_an_unknown_program_or_model_is_refused_with_an_explanation(tmp_path: Path) -> None:
    status, _, error = run(tmp_path, "env", "emacs")
    assert (status, "Known programs: claude" in error) == (2, True)
    status, _, error = run(tmp_path, "--to", "nobody:m", "--port", "0")
    assert (status, "Unknown vendor 'nobody'" in error) == (2, True)


def test_the_configuration_file_names_models(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text('[gateway.models]\nfast = "nobody:m"\n')
    env = {**environment(tmp_path), "BARTACK_CONFIG": str(config)}
    done = subprocess.run(COMMAND, capture_output=True, text=True, check=False, env=env, timeout=LIMIT_S)
    assert (done.returncode, "Unknown vendor 'nobody'" in done.stderr) == (2, True)
