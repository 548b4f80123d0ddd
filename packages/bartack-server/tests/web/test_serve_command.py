"""`bartack serve`: the link signs a browser in, the token is kept, and unsafe addresses are refused."""

import asyncio
import os
import signal
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

from bartack_server.commands.serve import kept_token
from tests.web.serving import LIMIT_S, Client


def environment(folder: Path) -> dict[str, str]:
    places = ("HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "BARTACK_CACHE")
    return {**os.environ, **dict.fromkeys(places, str(folder)), "BARTACK_STORE": "", "BARTACK_WEB_TOKEN": ""}


async def test_the_printed_link_signs_one_browser_in_and_the_kept_token_any_program(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "bartack.cli", "serve", "--model", "local", "--port", "0", "--no-tools"]
    process = await asyncio.create_subprocess_exec(
        *words, stdout=subprocess.PIPE, env=environment(tmp_path), cwd=tmp_path
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(LIMIT_S):
            url, _, code = (await process.stdout.readline()).decode().strip().removeprefix("Open ").partition("/#code=")
            async with Client(url, None) as browser:
                status, _, _ = await browser.send(
                    "POST", "/api/login", json={"code": code}, headers={"origin": url, "host": url[7:]}
                )
                assert status == 200
                assert (await process.stdout.readline()).decode().startswith(f"For another browser: {url}/#code=")
            (token,) = list_tokens(tmp_path)
            async with Client(url, token) as program:
                assert (await program.get("/me"))["user"] == "owner"
            process.send_signal(signal.SIGINT)
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def test_a_token_that_can_be_guessed_is_refused(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "bartack.cli", "serve", "--model", "local", "--port", "0", "--no-tools"]
    env = environment(tmp_path) | {"BARTACK_WEB_TOKEN": "secret"}
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=env, cwd=tmp_path, timeout=LIMIT_S)
    assert (done.returncode, done.stdout) == (2, "")
    assert "BARTACK_WEB_TOKEN is too short; it needs at least 32 characters." in done.stderr
    assert "secret" not in done.stderr


def list_tokens(folder: Path) -> list[str]:
    paths = list(folder.rglob("web-token"))
    assert [stat.S_IMODE(path.stat().st_mode) for path in paths] == [0o600]
    return [path.read_text() for path in paths]


def test_an_address_for_others_without_tls_is_refused_with_an_explanation(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "bartack.cli", "serve", "--host", "0.0.0.0"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment(tmp_path))
    assert done.returncode == 2
    assert "in the clear" in done.stderr
    assert "Traceback" not in done.stderr
    assert "--public-url" in done.stderr


def test_servers_that_start_at_once_use_one_token(tmp_path: Path) -> None:
    barrier = Barrier(8)

    def start(_: int) -> str:
        barrier.wait()
        return kept_token(tmp_path / "new" / "web-token")

    with ThreadPoolExecutor(8) as pool:
        (token,) = set(pool.map(start, range(8)))
    assert list_tokens(tmp_path) == [token]
