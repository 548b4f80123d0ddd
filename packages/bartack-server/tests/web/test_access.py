"""Access is refused without the token, from other sites, and for requests that the API does not expect."""

import gzip
import json
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection
from starlette.routing import Mount

from bartack import Agent, BartackError, MemoryStore, ScriptedModel, ToolCall, assistant
from bartack_server.web import User, app
from bartack_server.web.access import Hosts, RateLimit, TokenAccess
from bartack_server.web.server import Address
from tests.web.agents import Gate, new_agent
from tests.web.serving import Client, served
from tests.web.test_api import answers, finished, state_is

PRIVATE = ["/api/me", "/api/sessions", "/api/sessions/s", "/api/sessions/s/events", "/api/openapi.json", "/api/tools"]


@pytest.fixture
async def stranger(client: Client) -> AsyncIterator[Client]:
    """A client of the same server without the token."""
    await client.post("/sessions", id="s")
    async with Client(client.url, None) as unsigned:
        yield unsigned


# -- the token


@pytest.mark.parametrize("path", PRIVATE)
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": "Bearer wrong"},
        {"authorization": "Bearer "},
        {"authorization": "Basic dXNlcjpwYXNz"},
        {"cookie": f"NAME=99999999999.{'0' * 64}"},
        {"cookie": "NAME=x.y"},
        {"cookie": "NAME="},
    ],
    ids=lambda headers: str(headers)[:30],
)
async def test_nothing_is_shown_without_the_token(
    client: Client, stranger: Client, path: str, headers: dict[str, str]
) -> None:
    name = TokenAccess(app_token(client)).cookie_name
    sent_headers = {key: value.replace("NAME", name) for key, value in headers.items()}
    status, value, _ = await stranger.send("GET", path, headers=sent_headers)
    assert (status, value["error"]["code"]) == (401, "authentication")


async def test_the_token_in_the_address_is_not_accepted(client: Client, stranger: Client) -> None:
    token = app_token(client)
    for name in ("token", "access_token", "code"):
        status, _, _ = await stranger.send("GET", "/api/me", params={name: token})
        assert status == 401


def app_token(client: Client) -> str:
    return str(client._http.headers["authorization"]).removeprefix("Bearer ")


async def test_guessing_is_slowed_down_but_the_right_token_still_works(client: Client, stranger: Client) -> None:
    wrong = {"authorization": "Bearer wrong"}
    statuses = [(await stranger.send("GET", "/api/me", headers=wrong))[0] for _ in range(150)]
    assert statuses[0] == 401
    assert 429 in statuses
    assert (await stranger.send("GET", "/api/me"))[0] == 401, "who sends no token has guessed none"
    assert (await client.get("/me"))["user"] == "owner"


async def test_a_code_is_exchanged_for_a_cookie_once(gate: Gate) -> None:
    application = app(new_agent(gate), store=MemoryStore())
    access = application.access
    assert isinstance(access, TokenAccess)
    async with served(application, token="none") as client, Client(client.url, None) as browser:
        code, own = access.code, {"origin": client.url}
        status, _, headers = await browser.send("POST", "/api/login", json={"code": code}, headers=own)
        assert status == 200
        cookie = headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "samesite=strict" in cookie.lower()
        assert code not in cookie
        assert application.token not in cookie
        again, _, _ = await browser.send("POST", "/api/login", json={"code": code}, headers=own)
        assert again == 401
        value = {"cookie": cookie.partition(";")[0]}
        assert (await browser.send("GET", "/api/me", headers=value))[0] == 200
        for wrong in (cookie.partition(";")[0][:-1] + "0", cookie.partition(";")[0].replace("=1", "=2", 1)):
            if wrong != value["cookie"]:
                assert (await browser.send("GET", "/api/me", headers={"cookie": wrong}))[0] == 401


def test_a_cookie_expires_and_belongs_to_its_token() -> None:
    times = [1000.0]
    access = TokenAccess("t" * 32, clock=lambda: times[0])
    cookie = access.exchange(access.code)
    assert cookie is not None

    foreign = TokenAccess("u" * 32, clock=lambda: times[0])
    assert foreign.cookie_name != access.cookie_name, "browsers send the cookies of all ports to each"

    def user(of: TokenAccess) -> User | None:
        scope = {"type": "http", "headers": [(b"cookie", f"{of.cookie_name}={cookie}".encode())]}
        return of.user_of(HTTPConnection(scope))

    assert user(access) is not None
    assert user(TokenAccess("t" * 32, clock=lambda: times[0])) is not None, "the same after a restart"
    assert user(foreign) is None
    times[0] += 31 * 24 * 3600
    assert user(access) is None


# -- other sites


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:80", "localhost.evil.example", "127.0.0.1.nip.io", "", "[", "0.0.0.0", "2130706433"],
)
async def test_a_foreign_host_is_refused(client: Client, host: str) -> None:
    status, _, _ = await client.send("GET", "/api/me", headers={"host": host})
    assert status in (400, 421)


@pytest.mark.parametrize(
    "origin",
    [
        "https://evil.example",
        "null",
        "http://127.0.0.1",  # another port
        "https://{own}",
        "http://{own}.evil.example",
        "http://user@{own}",
        "http://{own}/",
        "file://",
        "",
    ],
)
async def test_a_foreign_origin_is_refused_even_with_the_token(client: Client, origin: str) -> None:
    own = client.url.removeprefix("http://")
    for method, path in (("GET", "/api/me"), ("POST", "/api/sessions")):
        status, _, _ = await client.send(method, path, headers={"origin": origin.format(own=own)}, json={})
        assert status == 403
    assert (await client.get("/sessions"))["items"] == []


async def test_the_own_origin_is_accepted(client: Client) -> None:
    status, _, _ = await client.send("GET", "/api/me", headers={"origin": client.url})
    assert status == 200


async def test_a_request_that_the_browser_marks_as_cross_site_is_refused(client: Client) -> None:
    for site in ("cross-site", "same-site"):
        status, _, _ = await client.send("GET", "/api/me", headers={"sec-fetch-site": site, "sec-fetch-mode": "cors"})
        assert status == 403


async def test_a_cookie_alone_cannot_change_anything_without_an_origin(gate: Gate) -> None:
    application = app(new_agent(gate), store=MemoryStore())
    assert isinstance(application.access, TokenAccess)
    cookie = application.access.exchange(application.access.code)
    async with served(application) as client, Client(client.url, None) as browser:
        headers = {"cookie": f"{application.access.cookie_name}={cookie}"}
        status, _, _ = await browser.send("POST", "/api/sessions", headers=headers, json={"id": "s"})
        assert status == 403
        status, _, _ = await browser.send(
            "POST", "/api/sessions", headers={**headers, "origin": client.url}, json={"id": "s"}
        )
        assert status == 201


@pytest.mark.parametrize(
    "kind",
    ["application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "text/plain", "", "application/jsonp"],
)
async def test_a_form_of_another_site_is_refused(client: Client, kind: str) -> None:
    body = b'{"id": "s"}'
    status, value, _ = await client.send("POST", "/api/sessions", data=body, headers={"content-type": kind})
    assert (status, value["error"]["code"]) == (415, "unsupported_media_type")


async def test_preflights_get_no_permission(client: Client) -> None:
    headers = {"origin": "https://evil.example", "access-control-request-method": "POST"}
    status, _, reply_headers = await client.send("OPTIONS", "/api/sessions", headers=headers)
    assert status == 403
    assert not [name for name in reply_headers if name.lower().startswith("access-control")]


def test_hosts_with_a_scheme_need_exactly_that_origin() -> None:
    hosts = Hosts(["https://agents.example.com"])
    assert hosts.accepts("agents.example.com")
    assert not hosts.accepts("localhost")
    assert hosts.accepts_origin("https://agents.example.com", "agents.example.com", "http")
    assert not hosts.accepts_origin("http://agents.example.com", "agents.example.com", "http")


def test_the_port_that_a_scheme_implies_is_not_part_of_an_origin() -> None:
    """Browsers leave it out."""
    address = Address("0.0.0.0", public_url="https://agents.example.com:443/")
    address.check()
    assert address.origins(8000) == ["https://agents.example.com"]
    hosts = Hosts(["https://agents.example.com:443"])
    assert hosts.accepts("agents.example.com")
    assert hosts.accepts_origin("https://agents.example.com", "agents.example.com", "http")


# -- bodies


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'"text"',
        b'{"id": 1}',
        b'{"id": "\xff"}',
        b'{"id": "\\ud800"}',
        b'{"id": "x", "id2": 1}',
        b"[" * 5000 + b"]" * 5000,
        b'{"a":' * 80 + b"1" + b"}" * 80,
        gzip.compress(b'{"id": "x"}', mtime=0),
    ],
    ids=lambda body: repr(body[:20]),
)
async def test_a_malformed_body_is_an_error_of_the_client(client: Client, body: bytes) -> None:
    headers = {"content-type": "application/json"}
    status, value, _ = await client.send("POST", "/api/sessions", data=body, headers=headers)
    assert status == 400, value
    assert (await client.get("/sessions"))["items"] == []


async def test_a_body_that_is_too_large_is_refused_declared_or_not(client: Client) -> None:
    large = json.dumps({"title": "x" * 1_000_001}).encode()

    async def chunks() -> AsyncIterator[bytes]:
        for start in range(0, len(large), 65536):
            yield large[start : start + 65536]

    headers = {"content-type": "application/json"}
    for body in (large, chunks()):
        status, value, _ = await client.send("POST", "/api/sessions", data=body, headers=headers)
        assert (status, value["error"]["code"]) == (413, "request_too_large")


async def test_a_client_that_sends_half_a_request_does_not_block_others(client: Client) -> None:
    host, port = client.url.removeprefix("http://").split(":")
    half = socket.create_connection((host, int(port)))
    half.sendall(b"POST /api/sessions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n")
    assert (await client.get("/me"))["user"] == "owner"
    half.close()


# -- headers and paths


@pytest.mark.parametrize("path", ["/api/me", "/", "/none"])
async def test_every_response_has_the_security_headers(client: Client, path: str) -> None:
    _, _, headers = await client.send("GET", path)
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert "server" not in headers or "uvicorn" not in headers["server"] or path


@pytest.mark.parametrize(
    "path",
    [
        "/../../etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/static/../app.py",
        "/static/%2e%2e/app.py",
        "/static/..%2fapp.py",
        "/static//etc/passwd",
        "/static/..\\app.py",
        "/static/%00",
        "/api/sessions/..%2f..%2fx/entries",
        "/api/sessions/s/entries/..%2f/files/0",
        f"/api/sessions/s/entries/e/files/{'9' * 5000}",
    ],
)
async def test_path_tricks_lead_nowhere(client: Client, path: str) -> None:
    import yarl

    url = yarl.URL(client.url + path, encoded=True)
    async with client._http.get(url) as response:
        assert response.status in (400, 404)
        assert b"root:" not in await response.read()


async def test_an_unexpected_error_is_answered_like_any_other(gate: Gate) -> None:
    def broken(_: HTTPConnection) -> User | None:
        raise RuntimeError("the directory of users is away")

    async with served(app(new_agent(gate), store=MemoryStore(), authorize=broken)) as client:
        status, value, headers = await client.send("GET", "/api/me")
    assert (status, value["error"]["code"]) == (500, "internal")
    assert "users" not in value["error"]["message"]
    assert "default-src 'none'" in headers["content-security-policy"]


# -- several users


def who(request: HTTPConnection) -> User | None:
    name = request.headers.get("x-user")
    if name == "blocked":
        raise HTTPException(403, "Your account is blocked.")
    return None if name is None else User(name, f"{name}:")


async def test_users_see_and_change_their_own_sessions_only(gate: Gate) -> None:
    inner = app(new_agent(gate), store=MemoryStore(), authorize=who)
    outer = Starlette(routes=[Mount("/agent", inner)], lifespan=inner.lifespan)
    async with served(outer) as plain:
        ann = await as_user(plain, "ann")
        bob = await as_user(plain, "bob")
        async with ann, bob:
            assert (await plain.send("GET", "/agent/api/me"))[0] == 401
            status, value, _ = await plain.send("GET", "/agent/api/me", headers={"x-user": "blocked"})
            assert (status, value["error"]) == (
                403,
                {"code": "permission_denied", "message": "Your account is blocked."},
            )
            await finished(ann, "ann:1", "hello")
            assert await answers(ann, "ann:1") == ["You said: hello"]
            assert await bob.get("/sessions", limit=1) == {"items": [], "cursor": None}
            assert await bob.get("/search", query="hello", limit=1) == {"items": [], "cursor": None}
            assert await bob.get("/search/sessions", query="hello", limit=1) == {"items": [], "cursor": None}
            tokens = [(await user.get("/usage"))["total"].get("spend", {}).get("inputTokens") for user in (ann, bob)]
            assert tokens == [120, None]
            assert (await bob.send("POST", "/api/sessions/ann:1/mode", json={"mode": "ask"}))[0] == 404
            for path in ("", "/entries", "/views/feed", "/requests", "/events"):
                assert (await bob.send("GET", f"/api/sessions/ann:1{path}"))[0] == 404
            body: dict[str, Any]
            for where, body in (("runs", {"text": "x"}), ("requests", {"type": "queue", "text": "x"})):
                assert (await bob.send("POST", f"/api/sessions/ann:1/{where}", json=body))[0] == 404
            assert (await bob.send("POST", "/api/sessions", json={"id": "ann:2"}))[0] == 404
            assert (await bob.post("/sessions"))["id"].startswith("bob:")


async def test_chats_and_threads_of_others_are_out_of_reach(gate: Gate) -> None:
    async with served(app(new_agent(gate), store=MemoryStore(), authorize=who)) as plain:
        ann, bob = Client(plain.url, None), Client(plain.url, None)
        ann._http.headers["x-user"], bob._http.headers["x-user"] = "ann", "bob"
        async with ann, bob:
            await ann.post("/sessions/ann:1/runs", text="pay 5 Bob")
            await state_is(ann, "ann:1", "waiting")
            before = await ann.get("/sessions/ann:1/entries")
            (question,) = (await ann.get("/sessions/ann:1/requests"))["items"]
            id = f"{question['questionDigest']} {question['toolCallId']}"
            yes = {"id": id, "approved": True}
            for chat in ("ann:1", "1", "bob:/../ann:1"):
                path = f"/api/ai-sdk/chat/{quote(chat, safe='')}"
                assert (await bob.send("GET", f"{path}/messages"))[:2] == (
                    200,
                    [],
                )  # the same as for a chat that has not begun
                assert (await bob.send("GET", f"{path}/stream"))[0] == 204
                assert (await bob.send("POST", f"{path}/stop"))[0] == 204
                answered = {"id": chat, "messages": [{"id": "m", "role": "assistant", "parts": []}], "approvals": [yes]}
                assert (await bob.send("POST", "/api/ai-sdk/chat", json=answered))[0] == 404
                thread: dict[str, Any] = {"threadId": chat, "runId": "r"}
                status, body, _ = await bob.send("POST", "/api/ag-ui/connect", json=thread)
                assert (status, b'"messages":[]' in body) == (200, True)
                thread["resume"] = [{"interruptId": id, "status": "resolved"}]
                assert (await bob.send("POST", "/api/ag-ui", json=thread))[0] == 404
            assert await ann.get("/sessions/ann:1/entries") == before
            assert (await bob.get("/sessions"))["items"] == []
            assert await bob.get("/ai-sdk/chat/bartack:queue/messages") == []  # his own chat of that name


async def test_users_see_what_their_sub_agents_do(gate: Gate) -> None:
    inner = Agent(ScriptedModel(["Found it."]), name="researcher")
    script: list[Any] = [assistant(ToolCall("r1", "research", {"prompt": "?"})), "There it is."]
    agent = Agent(ScriptedModel(script), tools=[inner.as_tool("research", "Researches.")])
    mounted = app(agent, store=MemoryStore(), authorize=who)
    outer = Starlette(routes=[Mount("/agent", mounted)], lifespan=mounted.lifespan)
    async with served(outer) as plain, await as_user(plain, "ann") as ann, await as_user(plain, "bob") as bob:
        await finished(ann, "ann:1", "hello")
        entries = (await ann.get("/sessions/ann:1/entries"))["items"]
        (started,) = [entry["payload"]["metadata"] for entry in entries if entry["kind"] == "tool_progress"]
        path = f"/api/sessions/{started['sessionId']}/entries"
        status, page, _ = await ann.send("GET", path)
        assert status == 200
        assert "Found it." in str(page)
        assert (await bob.send("GET", path))[0] == 404


async def as_user(client: Client, name: str) -> Client:
    user_client = Client(f"{client.url}/agent", None)
    user_client._http.headers["x-user"] = name
    return user_client


async def test_pages_are_filled_although_others_have_more_sessions(gate: Gate) -> None:
    store = MemoryStore()
    for number in range(30):
        await store.create_session(f"{'ann' if number % 10 == 0 else 'bob'}:{number}")
    async with served(app(new_agent(gate), store=store, authorize=who)) as plain:
        ann = Client(plain.url, None)
        ann._http.headers["x-user"] = "ann"
        async with ann:
            page = await ann.get("/sessions", limit=2)
            next_page = await ann.get("/sessions", limit=2, cursor=page["cursor"])
            assert [session["id"] for session in page["items"] + next_page["items"]] == ["ann:20", "ann:10", "ann:0"]


# -- where it may listen


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.com"])
def test_a_server_for_others_needs_tls_or_a_proxy(host: str) -> None:
    with pytest.raises(BartackError, match="in the clear"):
        Address(host).check()
    Address(host, public_url="https://agents.example.com").check()
    Address(host, tls_cert=Path("cert.pem"), tls_key=Path("key.pem")).check()


def test_a_server_is_reached_under_the_names_that_it_prints() -> None:
    assert Address().origins(80)[0] == "http://127.0.0.1"
    assert Address("::1").origins(8000)[0] == "http://[::1]:8000"
    with_tls = Address("0.0.0.0", tls_cert=Path("cert.pem"), tls_key=Path("key.pem"))
    assert with_tls.origins(443) == [f"https://{socket.gethostname()}".lower()]
    assert Address("0.0.0.0", public_url="https://Agents.example.com/").origins(80) == ["https://agents.example.com"]


@pytest.mark.parametrize(
    "url",
    [
        "http://agents.example.com",
        "https://",
        "https://a/b",
        "agents.example.com",
        "https://a b",
        "https://a:99999",
        "https://[::1",
        "https://name:word@a",
    ],
)
def test_a_public_url_must_be_an_https_origin(url: str) -> None:
    for host in ("0.0.0.0", "127.0.0.1"):
        with pytest.raises(BartackError, match="public URL"):
            Address(host, public_url=url).check()
    if "://" in url and not url.startswith("http:"):
        with pytest.raises(BartackError, match="Invalid host"):
            Hosts([url])


def test_a_development_server_on_this_machine_needs_no_tls() -> None:
    Address("127.0.0.1", public_url="http://localhost:5173").check()
    with pytest.raises(BartackError, match="public URL"):
        Address("0.0.0.0", public_url="http://localhost:5173").check()


def test_the_limit_on_requests_recovers_and_its_memory_is_bounded() -> None:
    times = [0.0]
    limit = RateLimit(2, 1.0, clock=lambda: times[0])
    assert [limit.is_exceeded("a") for _ in range(3)] == [False, False, True]
    times[0] = 1.0
    assert [limit.is_exceeded("a") for _ in range(2)] == [False, True]
    for number in range(20_000):
        times[0] += 1
        limit.is_exceeded(number)
    assert len(limit._levels) < 10_010


def test_wrong_settings_of_the_application_are_refused() -> None:
    agent = Agent(ScriptedModel([]))
    with pytest.raises(BartackError, match="needs an agent"):
        app({})
    with pytest.raises(BartackError, match="not both"):
        app(agent, authorize=who, token="t")


async def test_too_many_requests_of_a_user_are_refused(gate: Gate) -> None:
    application = app(new_agent(gate), store=MemoryStore())
    application.request_limit = RateLimit(3, 0.0)
    async with served(application) as client:
        statuses = [(await client.send("GET", "/api/me"))[0] for _ in range(5)]
    assert statuses == [200, 200, 200, 429, 429]
