"""`gateway`: the ASGI application that serves models to the clients of other APIs.

    app = bartack_server.gateway.gateway({"sonnet": ["anthropic:claude-sonnet-4-6", "local"]}, store="sqlite:s.db")

It has the paths of Anthropic, OpenAI, Google and Ollama. A client needs another base URL and a key of the gateway; the
keys of the providers stay here. If it is mounted in another application, include its `lifespan` in that of the outer
one. Every refusal has the form that the client's provider would use.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from bartack.agent import Agent
from bartack.formats import writer
from bartack.models.model import StreamingModel
from bartack.nouns.deltas import Failed, Usage
from bartack.nouns.errors import BartackError, ErrorCode, ModelError, PartValidationError, StoreError
from bartack.nouns.logs import logger
from bartack.nouns.messages import Message
from bartack.nouns.requests import ModelRequest
from bartack.store import open_store
from bartack.store.address import StoreAddress
from bartack.store.session_store import SessionStore
from bartack_server.gateway import listings
from bartack_server.gateway.accounts import Accounts, Reservation
from bartack_server.gateway.agent_model import AgentModel
from bartack_server.gateway.answer import GatewayAnswer, RequestOutcome, estimated_tokens
from bartack_server.gateway.client_requests import (
    CHAT,
    GEMINI,
    MESSAGES,
    OLLAMA,
    RESPONSES,
    ClientRequest,
    client_request,
    error_in,
    failure_of,
    presented_keys,
)
from bartack_server.gateway.counting import counted_tokens
from bartack_server.gateway.drafts import Drafts, drafts_folder
from bartack_server.gateway.envelopes import Envelopes, envelope_key
from bartack_server.gateway.keys import GatewayKey, KeyRing
from bartack_server.gateway.pass_through import can_pass_through
from bartack_server.gateway.recording import Recorder, StoredResponse, session_id_for
from bartack_server.gateway.request_log import RequestLog
from bartack_server.gateway.upstreams import Upstream, Upstreams
from bartack_server.web.access import Hosts, RateLimit
from bartack_server.web.app import Guarded
from bartack_server.web.endpoint import HttpError, json_response, limited_body

__all__ = ["GatewayApp", "gateway"]

_log = logger("gateway")
_MAX_BODY = 64 * 1024 * 1024  # a conversation with its images is sent again with every request
_ENDING_S = 30.0  # for a store that does not respond
_GEMINI_VERSIONS = ("v1beta", "v1", "v1alpha")
_API_OF = {"/v1/messages": MESSAGES, "/v1beta/": GEMINI, "/v1alpha/": GEMINI, "/api/": OLLAMA}

Handler = Callable[[Request, GatewayKey], Awaitable[Response]]


class _Bill:
    """The account of one request."""

    def __init__(self, accounts: Accounts, key: GatewayKey) -> None:
        self._accounts = accounts
        self._key = key
        self._reservation: Reservation | None = None
        self._is_counted = False

    async def reserve(self, upstream: Upstream, request: ModelRequest) -> None:
        """Reserve the cost, once for all upstreams. Raises `ModelError` if a limit of the key does not allow it."""
        if not self._key.is_limited:
            return
        tokens, limit = estimated_tokens(request), request.config.max_tokens
        if self._is_counted:
            await self._accounts.price(self._key, upstream, Usage(tokens, 0))
        else:
            self._reservation = await self._accounts.reserve(self._key, upstream, tokens, limit)
            self._is_counted = True

    async def settle(self, outcome: RequestOutcome) -> None:
        """Replace the reservation by what was spent."""
        if self._reservation is not None and outcome.upstream is not None:
            await self._accounts.settle(self._reservation, outcome.upstream, outcome.spent)


class GatewayApp(Starlette):
    """The application, with its `lifespan`."""

    def __init__(
        self,
        upstreams: Upstreams,
        store: SessionStore | str | Path | None,
        hosts: Hosts,
        log: RequestLog | None = None,
        agents: Mapping[str, Agent[Any, Any]] = MappingProxyType({}),
        *,
        drafts: Path | None = None,
    ) -> None:
        """`drafts` is the folder for answers in progress (see `bartack_server.gateway.drafts`)."""
        self._upstreams = upstreams
        self._store_at = store
        self._log = log
        self._agents = agents
        self._drafts_at = drafts
        self._drafts: Drafts | None = None
        self._keys = KeyRing()
        self._refusals = RateLimit(20, 0.2)  # wrong keys, by address
        self._closing = asyncio.Event()
        self._endings: set[asyncio.Task[Any]] = set()
        handlers: dict[Any, Any] = {HTTPException: _no_such_path}
        super().__init__(routes=self._routes(), lifespan=self.lifespan, exception_handlers=handlers)
        self.add_middleware(Guarded, hosts=hosts)

    @asynccontextmanager
    async def lifespan(self, _: Any = None) -> AsyncIterator[None]:
        """Open the store and follow the keys in it."""
        address = self._store_at
        store = await open_store(address) if address is None or isinstance(address, str | Path) else address
        self._environment = store.environment
        self._recorder = Recorder(store)
        if self._drafts_at is not None:
            self._drafts = Drafts(self._drafts_at, self._recorder)
            await self._drafts.recover()
        for name, agent in self._agents.items():
            self._upstreams.add(f"agent:{name}", AgentModel(f"agent:{name}", agent.with_store(store)))
        self._accounts = Accounts(store)
        self._envelopes = Envelopes(await envelope_key(store))
        try:
            async with self._keys.following(store):
                yield
        finally:
            if self._endings:
                await asyncio.wait(self._endings, timeout=_ENDING_S)
            await self._upstreams.aclose()
            if store is not address:
                await store.close()

    async def drain(self) -> None:
        """End all answers in progress; their clients retry."""
        self._closing.set()

    def suspend(self) -> None:
        """End all work at once; there is none beside the answers."""
        self._closing.set()

    # -- routes

    def _routes(self) -> list[Route]:
        answers = {"/v1/messages": MESSAGES, "/v1/chat/completions": CHAT, "/v1/responses": RESPONSES}
        return [
            *(self._route("POST", path, format, self._answer) for path, format in answers.items()),
            self._route("POST", "/api/chat", OLLAMA, self._answer),
            self._route("POST", "/v1/messages/count_tokens", MESSAGES, self._count),
            *(self._route("POST", f"/{v}/models/{{call:path}}", GEMINI, self._answer_gemini) for v in _GEMINI_VERSIONS),
            self._route("GET", "/v1/models", CHAT, self._list(listings.models_list)),
            self._route("GET", "/v1/models/{model:path}", CHAT, self._show(listings.model_object)),
            self._route("GET", "/v1beta/models", GEMINI, self._list(listings.gemini_models)),
            self._route("GET", "/v1beta/models/{model:path}", GEMINI, self._show(listings.gemini_model)),
            self._route("GET", "/api/tags", OLLAMA, self._list(listings.ollama_tags)),
            self._route("GET", "/v1/responses/{id}", RESPONSES, self._show_response),
            self._route("DELETE", "/v1/responses/{id}", RESPONSES, self._delete_response),
            # Codex asks for a WebSocket first, and falls back to POST at once after a 404.
            Route("/v1/responses", _no_websockets, methods=["GET"]),
        ]

    def _route(self, method: str, path: str, format: str, handle: Handler) -> Route:
        async def handle_request(request: Request) -> Response:
            request.state.format = format
            try:
                return await handle(request, self._authenticated(request))
            except (BartackError, HttpError) as error:
                return _error_response(format, failure_of(error))

        return Route(path, handle_request, methods=[method])

    def _authenticated(self, request: Request) -> GatewayKey:
        try:
            return self._keys.find(presented_keys(request))
        except ModelError:
            address = request.client.host if request.client is not None else ""
            if self._refusals.is_exceeded(address):
                raise ModelError("Too many wrong keys.", code=ErrorCode.RATE_LIMITED, retry_after_ms=5000) from None
            raise

    async def _answer(self, request: Request, key: GatewayKey) -> Response:
        data = await limited_body(request, _MAX_BODY)
        parsed = client_request(request.state.format, request, data)
        self._check(key, parsed.model)
        upstreams = self._upstreams.named(parsed.model)
        is_agent, name = isinstance(upstreams[0].model, AgentModel), parsed.session_key  # an agent has its own sessions
        bill = _Bill(self._accounts, key)

        async def end(outcome: RequestOutcome) -> None:
            try:
                await bill.settle(outcome)
            except StoreError as error:  # the reservation remains
                _log.error("What a request has cost could not be stored: %s", error)
            if self._log is not None:
                try:
                    self._log.write(self._environment.now(), key, parsed, outcome)
                except OSError as error:
                    _log.error("The log of requests could not be written: %s", error)

        return GatewayAnswer(
            parsed,
            upstreams,
            self._environment,
            self._closing,
            self._endings,
            envelopes=self._envelopes,
            conversation=None if is_agent else self._recorder.conversation(key, parsed),
            draft=None if self._drafts is None else self._drafts.new(),
            session_id=session_id_for(key, f"agent {name}") if is_agent and name is not None else None,
            reserve=bill.reserve,
            on_end=end,
            earlier=await self._earlier(key, parsed, upstreams),
        )

    async def _earlier(
        self, key: GatewayKey, request: ClientRequest, upstreams: Sequence[Upstream]
    ) -> tuple[Message, ...]:
        """The messages that a request refers to instead of repeating them."""
        previous = request.facts.previous_response_id
        if request.facts.conversation is not None:
            raise PartValidationError("Conversations are not supported; send the history.", path="$.conversation")
        if previous is None:
            return ()
        response = await self._recorder.response(key, previous)
        if response is not None:
            return response.history
        if can_pass_through(request, upstreams[0].model):
            return ()  # an id of the upstream
        text = f"Previous response with id {previous[:100]!r} not found."
        raise PartValidationError(text, path="$.previous_response_id")

    async def _show_response(self, request: Request, key: GatewayKey) -> Response:
        response = await self._stored_response(request, key)
        model = "" if (meta := response.message.meta) is None or meta.model is None else meta.model.model
        own = writer(RESPONSES, response_id=request.path_params["id"], model_id=model)
        return json_response(own.whole_response(response.message))

    async def _delete_response(self, request: Request, key: GatewayKey) -> Response:
        await self._recorder.delete_response(await self._stored_response(request, key))
        return json_response({"id": request.path_params["id"], "object": "response", "deleted": True})

    async def _stored_response(self, request: Request, key: GatewayKey) -> StoredResponse:
        response_id = request.path_params["id"]
        response = await self._recorder.response(key, response_id)
        if response is None:
            raise ModelError(f"There is no response {response_id[:100]!r}.", code=ErrorCode.MODEL_NOT_FOUND)
        return response

    async def _answer_gemini(self, request: Request, key: GatewayKey) -> Response:
        method = request.path_params["call"].rpartition(":")[2]
        if method == "countTokens":
            return await self._count(request, key)
        if method not in ("generateContent", "streamGenerateContent"):
            raise ModelError(f"The gateway has no method {method[:100]!r}.", code=ErrorCode.MODEL_NOT_FOUND)
        return await self._answer(request, key)

    async def _count(self, request: Request, key: GatewayKey) -> Response:
        """The input tokens; programs use them to decide when to compact."""
        format = request.state.format
        parsed = client_request(format, request, await limited_body(request, _MAX_BODY))
        self._check(key, parsed.model)
        exact = await counted_tokens(parsed, self._upstreams.named(parsed.model)[0], self._envelopes)
        count = estimated_tokens(parsed.read(format)) if exact is None else exact
        headers = {"x-bartack-count": "estimate" if exact is None else "exact"}
        return json_response({"totalTokens": count} if format == GEMINI else {"input_tokens": count}, headers=headers)

    def _list(self, listing: Callable[[list[str]], dict[str, Any]]) -> Handler:
        async def show(request: Request, key: GatewayKey) -> Response:
            return json_response(listing([name for name in self._upstreams.names if key.may_use(name)]))

        return show

    def _show(self, model_object: Callable[[str], dict[str, Any]]) -> Handler:
        async def show(request: Request, key: GatewayKey) -> Response:
            name = request.path_params["model"]
            self._check(key, name)
            self._upstreams.named(name)  # raises if there is none
            return json_response(model_object(name))

        return show

    def _check(self, key: GatewayKey, model: str) -> None:
        if not key.may_use(model):
            text = f"The gateway key {key.name!r} is not for the model {model[:200]!r}."
            raise ModelError(text, code=ErrorCode.PERMISSION_DENIED)


async def _no_websockets(_: Request) -> Response:
    return _error_response(RESPONSES, Failed(ErrorCode.MODEL_NOT_FOUND, "There are no WebSockets here; use POST."))


async def _no_such_path(request: Request, error: HTTPException) -> Response:
    path = request.url.path
    format = next((format for start, format in _API_OF.items() if path.startswith(start)), CHAT)
    text = f"The gateway does not have {request.method} {path[:200]}."
    if error.status_code != 404:
        return json_response(error_in(format, Failed(ErrorCode.INVALID_REQUEST, text)).body, error.status_code)
    return _error_response(format, Failed(ErrorCode.MODEL_NOT_FOUND, text))


def _error_response(format: str, failed: Failed) -> Response:
    response = error_in(format, failed)
    delay_ms = failed.retry_after_ms
    headers = {} if delay_ms is None else {"retry-after": str(-(-delay_ms // 1000))}
    return json_response(response.body, response.status, headers)


def gateway(
    models: Mapping[str, Sequence[str | StreamingModel]] | None = None,
    *,
    default: Sequence[str | StreamingModel] = (),
    store: SessionStore | str | Path | None = None,
    hosts: Collection[str] = (),
    log: RequestLog | None = None,
    agents: Mapping[str, Agent[Any, Any]] = MappingProxyType({}),
    drafts: Path | None = None,
) -> GatewayApp:
    """An ASGI application that serves these models, each by its name, with the upstreams in order of preference.

    `default` answers for every other name. Without models and a default, clients may name any model of a vendor whose
    key is in the environment. `store` has the keys of clients (`bartack gateway keys`) and their conversations. `hosts`
    are the names under which clients reach the application; by default any loopback name. Requests are added to `log`.
    `agents` are served as models with the names ``agent:NAME``. `drafts` is the folder for answers in progress; with
    the address of a store, it follows from that.

    Raises `BartackError` for a model that cannot be created.
    """
    if drafts is None and (store is None or isinstance(store, str | Path)):
        drafts = drafts_folder(StoreAddress.parse(store))
    return GatewayApp(Upstreams(models, default=default), store, Hosts(hosts), log, agents, drafts=drafts)
