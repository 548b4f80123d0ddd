"""What Claude Code sends for Anthropic alone: other providers do not receive it."""

from typing import Any

from bartack.formats import encode, read_request
from bartack.formats.anthropic_messages.read import without_client_details

BILLING = {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1.37; cch=fa690;"}
REFERENCE = {"type": "tool_reference", "tool_name": "found"}


def tool(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "input_schema": {"type": "object"}, **fields}


def body(*names: str, system: Any = None, **fields: Any) -> dict[str, Any]:
    deferred = [tool(name, defer_loading=True, **fields) for name in names]
    turns = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "called", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "x"}]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "s", "name": "ToolSearch", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "s", "content": [REFERENCE, BILLING]}]},
    ]
    tools = [tool("ToolSearch"), *deferred]
    return {"model": "m", "max_tokens": 9, "messages": turns, "tools": tools, "system": system or "Be kind."}


def test_the_billing_line_is_left_out() -> None:
    rest = {"type": "text", "text": "Be kind."}
    for system in ([BILLING, rest], [rest, BILLING], [rest]):
        request = read_request("anthropic-messages", body(system=system))
        shaped, losses = without_client_details(request)
        assert shaped.messages[0].text == (rest["text"] if system[0] is BILLING else request.messages[0].text)
        assert [loss.where for loss in losses] == (["history[0].parts[0]"] if system[0] is BILLING else [])
    shaped, losses = without_client_details(read_request("anthropic-messages", body(system=[BILLING])))
    assert (shaped.messages[0].role, [loss.what for loss in losses]) == ("user", ["billing line"])


def test_deferred_tools_are_declared_once_they_are_found_or_called() -> None:
    request = read_request("anthropic-messages", body("hidden", "found", "called", "DeferredToolPlaceholder"))
    shaped, losses = without_client_details(request)
    assert [spec.name for spec in shaped.tools] == ["ToolSearch", "found", "called"]
    assert [loss.where for loss in losses] == ["tools[1]", "tools[4]"]
    encoded = encode("openai-chat", shaped)
    assert [entry["function"]["name"] for entry in encoded.body["tools"]] == ["ToolSearch", "found", "called"]
    assert not [loss for loss in encoded.report.losses if loss.where.startswith("tools")]


def test_other_fields_of_a_tool_are_still_reported() -> None:
    request = read_request("anthropic-messages", body("found", eager_input_streaming=True))
    report = encode("openai-chat", without_client_details(request)[0]).report
    fields = [loss.what for loss in report.losses if loss.where.startswith("tools")]
    assert fields == ["eager_input_streaming"]


def test_other_models_read_what_a_search_has_found() -> None:
    encoded = encode("openai-chat", read_request("anthropic-messages", body("found")))
    [result] = [message for message in encoded.body["messages"] if message.get("tool_call_id") == "s"]
    assert "The tool found is available." in str(result["content"])
