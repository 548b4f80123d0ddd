"""Where a tool has failed: in the log, in its span, and on stderr with --debug."""

import logging
from collections.abc import Iterator

import pytest

from bartack.cli.entry import run as run_command_line
from bartack.nouns.logs import logger
from bartack.tools import tool
from bartack.tools.tracer import UntracedTools, traceback_text
from tests.tools.rounds import Bench, call

SECRET = "4711-secret"


class Panic(BaseException):
    pass


@tool(name="break")
async def broken() -> None:
    """Break."""
    try:
        raise KeyError(SECRET)
    except KeyError as error:
        raise ValueError(f"no such order: {SECRET}") from error


@tool(name="panic")
async def panicking() -> None:
    """Panic."""
    raise Panic(SECRET)


@pytest.fixture(autouse=True)
def content_log() -> Iterator[logging.Logger]:
    log = logger("content")
    level, handlers = log.level, list(log.handlers)
    log.setLevel(logging.CRITICAL + 1)  # off, as it is until a command of this process was started with --debug
    log.handlers.clear()
    yield log
    log.setLevel(level)
    log.handlers[:] = handlers


@pytest.mark.parametrize("name", ["break", "panic"])
async def test_the_traceback_is_logged_without_the_text_of_the_exception(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    await Bench(broken, panicking).run(call(name, "c1"))
    (record,) = [record for record in caplog.records if record.name == "bartack.tools"]
    text = record.getMessage()
    assert f"tool call c1: {name} raised" in text
    assert "test_tracebacks.py" in text
    assert ("ValueError" if name == "break" else "Panic") in text
    assert SECRET not in caplog.text


async def test_with_content_the_whole_traceback_is_logged_once(
    caplog: pytest.LogCaptureFixture, content_log: logging.Logger
) -> None:
    caplog.set_level(logging.DEBUG)
    content_log.setLevel(logging.DEBUG)
    await Bench(broken).run(call("break", "c1"))
    (record,) = [record for record in caplog.records if "raised" in record.getMessage()]
    assert f"ValueError: no such order: {SECRET}" in record.getMessage()
    assert "KeyError" in record.getMessage()


async def test_nothing_is_logged_by_default(caplog: pytest.LogCaptureFixture) -> None:
    await Bench(broken).run(call("break", "c1"))
    assert [record for record in caplog.records if record.name.startswith("bartack.tools")] == []


async def test_debug_prints_tracebacks_of_tools(
    capsys: pytest.CaptureFixture[str], content_log: logging.Logger
) -> None:
    for _ in range(2):
        run_command_line(["--debug", "--version"])
    capsys.readouterr()
    await Bench(broken).run(call("break", "c1"))
    assert capsys.readouterr().err.count(f"ValueError: no such order: {SECRET}") == 1


def test_an_exception_without_a_traceback_has_a_text() -> None:
    UntracedTools().raised(ValueError())
    assert traceback_text(ValueError(SECRET), has_content=False).splitlines() == [
        "Traceback (most recent call last):",
        "ValueError",
    ]
