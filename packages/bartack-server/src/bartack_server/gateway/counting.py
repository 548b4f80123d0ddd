"""`counted_tokens`: the input tokens of a request, as its upstream counts them.

Anthropic, OpenAI (Responses) and Google count a request without answering it, for nothing. The request is sent to them
in their format, as the answer would be, so the count includes what was adapted. A request in the upstream's own format
is sent as it came. Other upstreams have no such endpoint, and for them the gateway estimates.

What an upstream answers to a count is no answer to the client: if it refuses, or does not know the endpoint, or takes
too long, the client gets an estimate.
"""

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from bartack.formats import LossReport, Written
from bartack.formats.anthropic_messages.read import without_client_details
from bartack.models.provider import PreparedCall, ProviderModel
from bartack.nouns.config import ModelConfig
from bartack.nouns.errors import BartackError, PartValidationError
from bartack.nouns.requests import ModelRequest
from bartack_server.gateway.client_requests import GEMINI, MESSAGES, ClientRequest
from bartack_server.gateway.envelopes import Envelopes, has_envelope
from bartack_server.gateway.pass_through import forwarded_headers
from bartack_server.gateway.upstreams import Upstream

__all__ = ["counted_tokens"]

_TIMEOUT_S = 10.0


class _Counter(NamedTuple):
    """How a vendor counts."""

    url: Callable[[str], str]  # The URL for answers becomes that for counts,
    body: Callable[[dict[str, Any], str], dict[str, Any]]  # and so does the body, with the name of the model.
    field: str  # The field of the response with the count.


def _only(*names: str) -> Callable[[dict[str, Any], str], dict[str, Any]]:
    return lambda body, _: {name: body[name] for name in names if name in body}


def _gemini_body(body: dict[str, Any], model_id: str) -> dict[str, Any]:
    body = {name: value for name, value in body.items() if name != "model"}
    return {"generateContentRequest": {"model": f"models/{model_id.removeprefix('models/')}", **body}}


# By the vendor: others that speak the same format do not have the endpoint.
_COUNTERS = {
    "anthropic": _Counter(
        lambda url: f"{url}/count_tokens",
        _only("model", "messages", "system", "tools", "tool_choice", "thinking", "output_config", "context_management"),
        "input_tokens",
    ),
    "openai": _Counter(
        lambda url: f"{url}/input_tokens",
        _only("model", "input", "instructions", "tools", "tool_choice", "parallel_tool_calls", "reasoning", "text"),
        "input_tokens",
    ),
    "google": _Counter(
        lambda url: url.replace(":streamGenerateContent?alt=sse", ":countTokens"), _gemini_body, "totalTokens"
    ),
}


async def counted_tokens(request: ClientRequest, upstream: Upstream, envelopes: Envelopes) -> int | None:
    """The count of the upstream; None if it does not give one."""
    model = upstream.model
    if not isinstance(model, ProviderModel) or model.vendor.name not in _COUNTERS:
        return None
    counter = _COUNTERS[model.vendor.name]
    try:
        call = _call(request, upstream, model, envelopes, counter)
        async with asyncio.timeout(_TIMEOUT_S):
            status, data = await model.fetch(call)
            count = msgspec.json.decode(data)[counter.field] if status == 200 else None
    except (BartackError, OSError, msgspec.DecodeError, KeyError, TypeError):  # TimeoutError is an OSError
        return None
    return count if type(count) is int else None


def _call(
    request: ClientRequest, upstream: Upstream, model: ProviderModel, envelopes: Envelopes, counter: _Counter
) -> PreparedCall:
    model_id = model.get_config().model_id
    is_own_format = upstream.format == request.format
    try:
        read = request.read(model.provider if is_own_format else request.format)
    except PartValidationError:
        if not is_own_format:
            raise
        read = ModelRequest((), config=ModelConfig(model_id))  # what is new to us is not to the upstream
    read = replace(read, config=replace(read.config, model_id=model_id), provider=model.provider)
    headers: dict[str, str] = {}
    if is_own_format and not has_envelope(request.data):
        body, headers = {**request.body, "model": model_id}, forwarded_headers(request)
        body = _gemini_body(request.body, model_id) if request.format == GEMINI else body
    else:
        read = envelopes.opened(request.format, read, upstream)
        if request.format == MESSAGES and not is_own_format:
            read, _ = without_client_details(read)
        body = counter.body(msgspec.json.decode(model.written(read).body), model_id)
    call = model.call_with(read, Written(msgspec.json.encode(body), LossReport(), ()), headers)
    http_request = replace(call.http_request, url=counter.url(call.http_request.url))
    return replace(call, http_request=http_request)
