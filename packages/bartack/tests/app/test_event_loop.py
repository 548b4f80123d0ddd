"""The event loop of the windows."""

import asyncio

import pytest

from bartack.app.platform import run_async


async def kind_of_loop() -> type[asyncio.AbstractEventLoop]:
    return type(asyncio.get_running_loop())


def test_uvloop_is_used_if_it_is_installed() -> None:
    uvloop = pytest.importorskip("uvloop")
    assert run_async(kind_of_loop()) is uvloop.Loop


def test_without_uvloop_the_loop_of_asyncio_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bartack.app.platform.find_spec", lambda name: None)
    with asyncio.Runner() as runner:
        assert run_async(kind_of_loop()) is type(runner.get_loop())
