"""`--otel`: spans and metrics of the command line arrive at a collector, as configured by the ``OTEL_`` variables."""

import asyncio
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.provider_server import provider
from tests.code.chat.scene import scene
from tests.code.chat.terminal import needs_tmux
from tests.code.test_run import TIMEOUT, Shell
from tests.telemetry.collector import Collector, attributes_of, collector
from tests.web.serving import Client

TOKEN = "t" * 32

METRICS = {
    "bartack.active_runs",
    "gen_ai.client.operation.duration",
    "gen_ai.client.operation.time_to_first_chunk",
    "gen_ai.client.token.usage",
}


@pytest.fixture
def receiver() -> Iterator[Collector]:
    with collector() as receiver:
        yield receiver


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    """A user with a provider that answers."""
    with provider([["Rain."]]) as server:
        yield Shell(tmp_path).at(server)


def names(receiver: Collector) -> list[str]:
    return [span.name for span in receiver.spans if span.name != "append"]


RUN = ["invoke_agent bartack", "chat test"]


def test_run_sends_its_spans_and_metrics(shell: Shell, receiver: Collector) -> None:
    done = shell.bartack("Will it rain?", "--otel", OTEL_EXPORTER_OTLP_ENDPOINT=receiver.endpoint)
    assert (done.status, done.stdout) == (0, b"Rain.\n")
    assert "elemetry" not in done.stderr
    assert names(receiver) == RUN
    assert receiver.services == {"bartack"}
    assert receiver.metric_names == METRICS
    run, *_ = receiver.spans
    assert attributes_of(run)["gen_ai.usage.input_tokens"] == 10
    assert "rain" not in repr(receiver.traces).lower()


def test_nothing_is_sent_without_it(shell: Shell, receiver: Collector) -> None:
    assert shell.bartack("Hi", OTEL_EXPORTER_OTLP_ENDPOINT=receiver.endpoint).status == 0
    assert receiver.headers == []


@pytest.mark.parametrize(
    ("file", "variable", "flags"),
    [("otel = true", "", []), ("", "1", []), ("otel = true", "0", []), ("", "1", ["--no-otel"])],
)
def test_a_flag_overrides_the_variable_which_overrides_the_file(
    shell: Shell, receiver: Collector, file: str, variable: str, flags: list[str]
) -> None:
    shell.config.write_text(file)
    shell.env |= {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.endpoint, "BARTACK_CONFIG": str(shell.config)}
    shell.env |= {"BARTACK_OTEL": variable} if variable else {}
    assert shell.bartack("Hi", *flags).status == 0
    assert names(receiver) == ([] if flags or variable == "0" else RUN)


def test_the_variables_of_opentelemetry_are_honoured(shell: Shell, receiver: Collector) -> None:
    done = shell.bartack(
        "Will it rain?",
        "--otel",
        OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=f"{receiver.endpoint}/v1/traces",
        OTEL_EXPORTER_OTLP_HEADERS="x-key=abc",
        OTEL_METRICS_EXPORTER="none",
        OTEL_SERVICE_NAME="forecasts",
        OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT="true",
    )
    assert done.status == 0
    assert receiver.services == {"forecasts"}
    assert {headers.get("x-key") for headers in receiver.headers} == {"abc"}
    assert receiver.metrics == []
    question = json.loads(attributes_of(receiver.spans[0])["gen_ai.input.messages"])
    assert question[0]["parts"] == [{"type": "text", "content": "Will it rain?"}]


def test_a_sampler_or_a_disabled_sdk_keeps_spans_from_being_sent(shell: Shell, receiver: Collector) -> None:
    shell.env |= {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.endpoint}
    assert shell.bartack("Hi", "--otel", OTEL_TRACES_SAMPLER="always_off").status == 0
    assert (receiver.spans, receiver.metric_names) == ([], METRICS)
    receiver.metrics.clear()
    assert shell.bartack("Hi", "--otel", OTEL_SDK_DISABLED="true").status == 0
    assert (receiver.spans, receiver.metrics) == ([], [])


def test_without_a_collector_the_answer_comes_with_one_warning(shell: Shell) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{free.getsockname()[1]}"
        done = shell.bartack("Hi", "--otel", OTEL_EXPORTER_OTLP_ENDPOINT=endpoint)
    assert (done.status, done.stdout) == (0, b"Rain.\n")
    warnings = [line for line in done.stderr.splitlines() if not line.startswith("session ")]
    assert len(warnings) == 1, done.stderr
    assert warnings[0].startswith(f"warning: Telemetry was not delivered to {endpoint}/v1/traces")


def test_the_console_exporter_prints_to_stderr(shell: Shell) -> None:
    done = shell.bartack("Hi", "--otel", OTEL_TRACES_EXPORTER="console", OTEL_METRICS_EXPORTER="none")
    assert (done.status, done.stdout) == (0, b"Rain.\n")
    assert '"name": "invoke_agent bartack"' in done.stderr


@pytest.mark.parametrize(
    ("variable", "value", "problem"),
    [
        ("OTEL_TRACES_EXPORTER", "zipkin", "requires the exporter 'zipkin', which is not installed"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "smoke", "OTEL_EXPORTER_OTLP_PROTOCOL is 'smoke'"),
    ],
)
def test_a_wrong_variable_is_a_usage_error(shell: Shell, variable: str, value: str, problem: str) -> None:
    shell.env[variable] = value
    done = shell.bartack("Hi", "--otel")
    assert done.status == 2
    assert problem in done.error()


# An exporter is found by its entry point, everything else by its import.
WITHOUT = """
import importlib.metadata, sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if f"{{name}}.".startswith("{library}."):
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Missing())
if "exporter" in "{library}":
    importlib.metadata.entry_points = lambda **_: ()
from bartack.cli import main
main()
"""


@pytest.mark.parametrize("library", ["opentelemetry.sdk", "opentelemetry", "opentelemetry.exporter.otlp.proto.http"])
def test_a_missing_library_is_named_with_the_command_that_installs_it(shell: Shell, library: str) -> None:
    code = WITHOUT.format(library=library)
    done = subprocess.run(
        [sys.executable, "-c", code, "run", "Hi", "--otel"],
        env=shell.env,
        cwd=shell.work,
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT,
    )
    assert done.returncode == 2
    assert f"{library} is not installed" in done.stderr
    assert "pip install bartack-code 'bartack[otlp]'" in done.stderr


@needs_tmux
def test_chat_sends_its_spans_when_it_ends(tmp_path: Path, receiver: Collector) -> None:
    with (
        scene(tmp_path, ["It will rain."]) as stage,
        stage.chat("--otel", OTEL_EXPORTER_OTLP_ENDPOINT=receiver.endpoint) as chat,
    ):
        chat.wait_for_prompt()
        chat.say("Will it rain?")
        chat.wait_for("It will rain.")
        chat.wait_for_prompt()
        chat.say("/quit")
        chat.wait_for("[left with 0]")
    assert names(receiver) == RUN


async def test_serve_sends_the_spans_of_its_runs(shell: Shell, receiver: Collector) -> None:
    shell.env |= {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.endpoint, "BARTACK_WEB_TOKEN": TOKEN}
    words = [sys.executable, "-m", "bartack.cli", "serve", "--otel", "--port", "0", "--no-tools"]
    process = await asyncio.create_subprocess_exec(*words, stdout=subprocess.PIPE, env=shell.env, cwd=shell.work)
    try:
        async with asyncio.timeout(TIMEOUT):
            assert process.stdout is not None
            line = (await process.stdout.readline()).decode()
            async with Client(line.removeprefix("Open ").partition("/#code=")[0], TOKEN) as client:
                await client.post("/sessions/s/runs", text="Will it rain?")
                while not any(span.name == RUN[0] for span in receiver.spans):  # noqa: ASYNC110 - it is another thread
                    await asyncio.sleep(0.1)
            process.send_signal(signal.SIGINT)
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert names(receiver) == RUN


# -- doctor


def checks(shell: Shell, **variables: str) -> dict[str, dict[str, str]]:
    done = subprocess.run(
        [sys.executable, "-m", "bartack.cli", "doctor", "--json"],
        env=shell.env | variables,
        cwd=shell.work,
        capture_output=True,
        check=False,
        timeout=TIMEOUT,
    )
    assert b"hunter2" not in done.stdout + done.stderr
    return {check["name"]: check for check in json.loads(done.stdout)["checks"] if check["section"] == "telemetry"}


def test_doctor_shows_where_spans_go(shell: Shell, receiver: Collector) -> None:
    reported = checks(
        shell,
        BARTACK_OTEL="1",
        OTEL_EXPORTER_OTLP_ENDPOINT=receiver.endpoint.replace("//", "//ann:hunter2@"),
        OTEL_EXPORTER_OTLP_HEADERS="authorization=hunter2",
        OTEL_METRICS_EXPORTER="console",
        OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT="true",
    )
    assert reported["otel"]["text"] == "on (from BARTACK_OTEL)"
    assert (reported["traces"]["state"], reported["traces"]["text"]) == ("ok", f"{receiver.endpoint}/v1/traces")
    assert reported["metrics"]["text"] == "exporter console"
    assert reported["content"]["text"].startswith("recorded")
    assert receiver.headers == []


def test_doctor_notes_that_nothing_listens_there(shell: Shell) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{free.getsockname()[1]}"
        reported = checks(
            shell, BARTACK_OTEL="true", OTEL_EXPORTER_OTLP_ENDPOINT=endpoint, OTEL_METRICS_EXPORTER="none"
        )
    assert reported["traces"]["state"] == "note"
    assert "no connection" in reported["traces"]["text"]
    assert reported["metrics"]["text"] == "not exported"
    assert checks(shell)["otel"]["text"] == "off; --otel turns it on"
