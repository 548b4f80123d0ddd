"""Content is in spans only when asked for, and never what has been redacted."""

import json

import pytest

from bartack import FileRef, Image, Message, Thinking, assistant, tool, user
from bartack.agent import Agent
from bartack.models import ScriptedModel
from bartack.store import MemoryStore, SessionStore
from bartack.store.requests import redact
from bartack.telemetry import content
from bartack.telemetry.telemetry import captures_content
from tests.agent.kit import SESSION, call, make
from tests.telemetry.kit import Recorder, attributes

SECRET = "xyzzy"


@tool
async def secret(word: str) -> str:
    """Returns a secret."""
    return f"{SECRET} {word}"


async def secret_run(recorder: Recorder, *, content: bool | None) -> None:
    tool_turn = assistant(Thinking(f"{SECRET} thought"), call("c1", "secret", word=SECRET))
    agent, _, _ = make(
        [tool_turn, f"The {SECRET}."],
        secret,
        instructions=f"Keep {SECRET} to yourself.",
        telemetry=recorder.telemetry(content=content),
    )
    await agent.run(f"What is {SECRET}?", session=SESSION)


def everything(recorder: Recorder) -> str:
    return "".join(span.to_json() for span in recorder.spans) + repr(recorder.metrics())


async def test_no_content_is_recorded_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", raising=False)
    recorder = Recorder()
    await secret_run(recorder, content=None)
    assert SECRET not in everything(recorder)


async def test_the_setting_has_precedence_over_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "true")
    enabled, disabled = Recorder(), Recorder()
    await secret_run(enabled, content=None)
    await secret_run(disabled, content=False)
    assert SECRET in everything(enabled)
    assert SECRET not in everything(disabled)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        *((value, True) for value in ("true", "True", "1", "SPAN_ONLY", "SPAN_AND_EVENT")),
        *((value, False) for value in ("", "false", "EVENT_ONLY", "NO_CONTENT")),
    ],
)
def test_the_values_of_the_variable(value: str, expected: bool) -> None:
    assert captures_content({"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": value}) is expected
    assert not captures_content({})


async def test_content_has_the_form_of_the_conventions() -> None:
    recorder = Recorder()
    await secret_run(recorder, content=True)
    first, second = (
        {
            name: json.loads(value)
            for name, value in attributes(span).items()
            if name.endswith(("messages", "instructions"))
        }
        for span in recorder.named("chat scripted")
    )
    question = {"role": "user", "parts": [{"type": "text", "content": f"What is {SECRET}?"}]}
    tool_call = {"type": "tool_call", "id": "c1", "name": "secret", "arguments": {"word": SECRET}}
    answer = {"role": "assistant", "parts": [{"type": "reasoning", "content": f"{SECRET} thought"}, tool_call]}
    result = {"type": "tool_call_response", "id": "c1", "response": f"{SECRET} {SECRET}"}
    assert first == {
        "gen_ai.system_instructions": [{"type": "text", "content": f"Keep {SECRET} to yourself."}],
        "gen_ai.input.messages": [question],
        "gen_ai.output.messages": [{**answer, "finish_reason": "tool_calls"}],
    }
    assert second["gen_ai.input.messages"][0] == question
    assert second["gen_ai.input.messages"][-1] == {"role": "tool", "parts": [result]}
    (definition,) = json.loads(attributes(recorder.named("chat scripted")[0])["gen_ai.tool.definitions"])
    assert definition["name"] == "secret"
    assert definition["parameters"]["required"] == ["word"]
    tool_span = attributes(recorder.one("execute_tool secret"))
    assert json.loads(tool_span["gen_ai.tool.call.arguments"]) == {"word": SECRET}
    assert tool_span["gen_ai.tool.call.result"] == f"{SECRET} {SECRET}"
    run = attributes(recorder.one("invoke_agent"))
    assert json.loads(run["gen_ai.input.messages"]) == [question]
    assert json.loads(run["gen_ai.output.messages"]) == [
        {"role": "assistant", "parts": [{"type": "text", "content": f"The {SECRET}."}], "finish_reason": "stop"}
    ]


def test_images_and_files_are_described_without_their_bytes() -> None:
    message = user(
        Image("image/png", data=b"1234"),
        Image.from_url("https://example.com/a.png"),
        FileRef("notes.pdf", data=b"12", mime_type="application/pdf", size=2),
        "Look",
    )
    (described,) = content.messages([message])
    assert described["parts"] == [
        {"type": "image", "modality": "image", "mime_type": "image/png", "size": 4},
        {"type": "uri", "modality": "image", "mime_type": "image/png", "uri": "https://example.com/a.png"},
        {"type": "file_ref", "modality": "document", "mime_type": "application/pdf", "size": 2},
        {"type": "text", "content": "Look"},
    ]


# -- redaction


async def entry_of(store: SessionStore, role: str, text: str) -> str:
    """The id of the entry of a message."""
    return next(
        entry.id
        for entry in await store.load(SESSION)
        if isinstance(entry.fact, Message) and entry.fact.role == role and text in entry.fact.text
    )


async def test_a_redacted_message_is_not_in_the_spans_of_later_runs() -> None:
    recorder = Recorder()
    agent, store, _ = make([f"Yes, {SECRET}.", "Hello."], telemetry=recorder.telemetry(content=True))
    await agent.run(f"I am {SECRET}", session=SESSION)
    for role in ("user", "assistant"):
        await redact(store, SESSION, await entry_of(store, role, SECRET))
    before = len(recorder.spans)
    await agent.run("Hello", session=SESSION)
    later = "".join(span.to_json() for span in recorder.spans[before:])
    assert "[redacted]" in later
    assert SECRET not in later


async def test_what_is_redacted_during_a_run_is_not_in_the_spans_that_end_later() -> None:
    recorder = Recorder()
    store = MemoryStore()

    @tool(name="weather")
    async def redacting(city: str) -> str:
        """Redacts the prompt."""
        await redact(store, SESSION, await entry_of(store, "user", SECRET))
        return "Rain."

    agent = Agent(
        ScriptedModel([assistant(call("c1")), "Rain."]),
        tools=[redacting],
        store=store,
        telemetry=recorder.telemetry(content=True),
    )
    await agent.run(f"I am {SECRET}", session=SESSION)
    first, *later = recorder.named("chat scripted")
    assert SECRET in first.to_json()  # it was sent before the redaction
    assert SECRET not in "".join(span.to_json() for span in (*later, recorder.one("invoke_agent")))


async def test_the_arguments_of_a_redacted_call_are_not_recorded_when_it_is_executed() -> None:
    recorder = Recorder()
    agent, store, _ = make(
        [assistant("Paying.", call("c1", "transfer", amount=99887766)), "Done."],
        telemetry=recorder.telemetry(content=True),
    )
    await agent.run("Pay", session=SESSION)
    await agent.approve(SESSION, "c1")
    await redact(store, SESSION, await entry_of(store, "assistant", "Paying."))
    before = len(recorder.spans)
    await agent.resume(SESSION)
    later = recorder.spans[before:]
    assert [span.name for span in later if span.name != "append"][1] == "execute_tool transfer"
    assert "99887766" not in "".join(
        str(attributes(span).get(name, ""))
        for span in later
        for name in ("gen_ai.tool.call.arguments", "gen_ai.tool.call.result")
    )


@pytest.mark.parametrize("content", [True, False])
async def test_the_span_of_a_tool_that_raised_has_its_traceback(content: bool) -> None:
    recorder = Recorder()
    agent, _, _ = make(
        [assistant(call("c1", "fail", why=SECRET)), "Done."], telemetry=recorder.telemetry(content=content)
    )
    await agent.run("Go", session=SESSION)
    (event,) = [event for span in recorder.spans for event in span.events if event.name == "exception"]
    details = dict(event.attributes or {})
    assert details["exception.type"] == "RuntimeError"
    assert "kit.py" in str(details["exception.stacktrace"])
    assert (SECRET in str(details["exception.stacktrace"])) is content
    assert ("exception.message" in details) is content
