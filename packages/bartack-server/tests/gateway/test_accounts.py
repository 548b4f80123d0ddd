"""Budgets: reserved before, settled after, shared by all gateways on a store; and the log of requests."""

import asyncio
import json
import os
import stat
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from bartack import MemoryStore, ScriptedModel
from bartack.environment import Environment
from bartack.formats.request_facts import RequestFacts
from bartack.nouns.deltas import Delta, Done, Failed, Start, TextDelta, Usage
from bartack.nouns.entries import Custom
from bartack.nouns.errors import ErrorCode, ModelError
from bartack.store import open_store
from bartack.testing import fault_server
from bartack_server.gateway.accounts import Accounts
from bartack_server.gateway.answer import RequestOutcome
from bartack_server.gateway.client_requests import ClientRequest
from bartack_server.gateway.keys import Budget, GatewayKey
from bartack_server.gateway.request_log import RequestLog, log_lines
from bartack_server.gateway.upstreams import Upstream
from tests.gateway.bodies import request
from tests.gateway.serving import (
    LIMIT_S,
    BrokenStore,
    WaitingModel,
    answering,
    serving,
    stored_key,
    upstream,
    whole_answer,
)

NOW = datetime(2026, 11, 18, 12, tzinfo=UTC)
ANSWER: list[Delta] = [Start("m", "r"), TextDelta("Hi."), Usage(40, 10), Done("stop")]


def key(**limits: Budget) -> GatewayKey:
    return GatewayKey(id="k", name="bob", digest="", created=NOW, **limits)  # type: ignore[arg-type]


async def test_reservations_of_two_gateways_share_one_budget_and_settling_frees_the_rest() -> None:
    store = MemoryStore(environment=Environment(now=lambda: NOW))
    free = Upstream("m", ScriptedModel([]))
    first, second = Accounts(store), Accounts(store)
    own = key(day=Budget(tokens=250))
    reservation = await first.reserve(own, free, 100, 50)
    assert reservation is not None
    with pytest.raises(ModelError) as refused:
        await second.reserve(own, free, 100, 50)
    assert refused.value.code is ErrorCode.QUOTA_EXCEEDED
    assert "150 of 250 tokens this day" in str(refused.value)
    await first.settle(reservation, free, Usage(40, 10))
    assert await second.reserve(own, free, 100, 50) is not None


async def test_simultaneous_requests_of_gateways_with_stores_of_their_own_do_not_overspend(tmp_path: Path) -> None:
    free = Upstream("m", ScriptedModel([]))
    own = key(month=Budget(tokens=1000))
    stores = [await open_store(tmp_path / "sessions.db") for _ in range(2)]
    try:
        gateways = [Accounts(store) for store in stores]
        tries = [gateways[number % 2].reserve(own, free, 50, 50) for number in range(20)]
        results = await asyncio.gather(*tries, return_exceptions=True)
    finally:
        for store in stores:
            await store.close()
    refused = [result for result in results if isinstance(result, ModelError)]
    assert (len(results) - len(refused), len(refused)) == (10, 10)
    assert not [result for result in results if isinstance(result, BaseException) and result not in refused]


async def test_gateways_on_one_store_share_the_rate_of_a_key() -> None:
    times = [NOW]
    store = MemoryStore(environment=Environment(now=lambda: times[0]))
    free = Upstream("m", ScriptedModel([]))
    own = GatewayKey(id="k", name="bob", digest="", created=NOW, per_minute=2)
    first, second = Accounts(store), Accounts(store)
    assert await first.reserve(own, free, 1, 1) is None  # nothing to settle
    times[0] += timedelta(seconds=20)
    await second.reserve(own, free, 1, 1)
    with pytest.raises(ModelError) as refused:
        await first.reserve(own, free, 1, 1)
    assert (refused.value.code, refused.value.retry_after_ms) == (ErrorCode.RATE_LIMITED, 40_000)
    times[0] += timedelta(seconds=40)
    await second.reserve(own, free, 1, 1)
    with pytest.raises(ModelError):
        await second.reserve(own, free, 1, 1)


async def test_a_reservation_whose_gateway_died_expires_and_days_add_up_to_the_month() -> None:
    times = [NOW]
    store = MemoryStore(environment=Environment(now=lambda: times[0]))
    free = Upstream("m", ScriptedModel([]))
    own = key(day=Budget(tokens=150), month=Budget(tokens=250))
    accounts = Accounts(store)
    await accounts.reserve(own, free, 100, 50)  # and never settled
    times[0] += timedelta(minutes=59)
    with pytest.raises(ModelError, match="this day"):
        await accounts.reserve(own, free, 100, 50)
    times[0] += timedelta(minutes=2)
    for _ in range(2):
        reservation = await accounts.reserve(own, free, 50, 50)
        assert reservation is not None
        await accounts.settle(reservation, free, Usage(50, 40))
        times[0] += timedelta(days=1)
    with pytest.raises(ModelError, match="180 of 250 tokens this month"):
        await accounts.reserve(own, free, 50, 50)


async def test_a_client_that_disconnects_before_the_end_has_spent_what_it_received() -> None:
    store, model = MemoryStore(), WaitingModel()
    secret = await stored_key(store, name="bob", day=Budget(tokens=5000))
    async with serving({"m": [model]}, store=store) as gateway:
        sending = asyncio.ensure_future(gateway.post(*request("openai-chat"), headers={"x-api-key": secret}))
        async with asyncio.timeout(LIMIT_S):
            await model.asked.wait()
            sending.cancel()
            while not (facts := await spending(store, "gateway_settled")):  # noqa: ASYNC110 - another task appends
                await asyncio.sleep(0.01)
    assert 0 < facts[0].data["tokens"] < 100


async def test_an_answer_whose_usage_the_client_did_not_ask_for_is_charged_by_an_estimate() -> None:
    """Chat Completions report usage in a stream only if the request says so, and the request passes through."""
    store, format = MemoryStore(), "openai-chat"
    secret = await stored_key(store, name="bob", day=Budget(tokens=5000))
    async with (
        fault_server(answering(format, whole_answer(format))) as server,
        serving({"m": [upstream(format, server.base_url)]}, store=store) as gateway,
    ):
        status, _, _ = await gateway.post(*request(format), headers={"x-api-key": secret})
        assert status == 200
        async with asyncio.timeout(LIMIT_S):
            while not (facts := await spending(store, "gateway_settled")):  # noqa: ASYNC110 - after the response
                await asyncio.sleep(0.01)
    assert 0 < facts[0].data["tokens"] < 100


async def spending(store: MemoryStore, name: str) -> list[Custom]:
    """The facts with this name in all accounts."""
    ids = [info.id for info in (await store.sessions(reserved=True)).items if ":spend:" in info.id]
    facts = [entry.fact for session_id in ids for entry in await store.entries(session_id)]
    return [fact for fact in facts if isinstance(fact, Custom) and fact.name == name]


async def test_another_upstream_does_not_take_over_without_a_price_if_the_budget_is_in_dollars() -> None:
    store = MemoryStore()
    secret = await stored_key(store, name="bob", day=Budget(usd=1.0))
    free = ScriptedModel([Failed(ErrorCode.OVERLOADED, "busy", retryable=True)])
    models = [free, upstream("openai-responses", "http://127.0.0.1:9")]
    async with serving({"m": models}, store=store) as gateway:
        status, data, _ = await gateway.post(*request("openai-chat"), headers={"x-api-key": secret})
    assert (status, b"price of" in data) == (403, True)


async def test_a_budget_in_dollars_is_refused_for_a_model_without_a_price() -> None:
    accounts = Accounts(MemoryStore())
    own = key(day=Budget(usd=1.0))
    with pytest.raises(ModelError, match="price of"):
        await accounts.reserve(own, Upstream("?", upstream("openai-responses", "http://127.0.0.1:9")), 10, 10)
    assert await accounts.reserve(own, Upstream("local", ScriptedModel([])), 10, 10) is not None


@pytest.mark.parametrize(
    ("format", "status", "word"),
    [("anthropic-messages", 402, b"billing_error"), ("openai-responses", 429, b"insufficient_quota")],
)
async def test_a_spent_budget_is_refused_in_the_form_of_the_client(format: str, status: int, word: bytes) -> None:
    store = MemoryStore()
    secret = await stored_key(store, name="bob", day=Budget(tokens=5))
    async with serving({"m": [ScriptedModel([ANSWER])]}, store=store) as gateway:
        answered, data, _ = await gateway.post(*request(format), headers={"x-api-key": secret})
    assert (answered, word in data) == (status, True)


async def test_a_request_is_settled_and_logged_without_its_content(tmp_path: Path) -> None:
    store = MemoryStore()
    secret = await stored_key(store, name="bob", day=Budget(tokens=4300))
    path = tmp_path / "log.jsonl"
    async with serving({"m": [ScriptedModel([ANSWER, ANSWER])]}, store=store, log=RequestLog(path)) as gateway:
        for count in (1, 2):  # the second one fits only because the first one was settled
            body = request("openai-chat", prompt="a secret prompt")
            assert (await gateway.post(*body, headers={"x-api-key": secret}))[0] == 200
            async with asyncio.timeout(LIMIT_S):
                while len(list(log_lines(path, follow=False))) < count:  # noqa: ASYNC110 - written by another task
                    await asyncio.sleep(0.01)
    line = next(log_lines(path, follow=False))
    assert (line["key"], line["model"], line["status"]) == ("bob", "m", "done")
    assert (line["inputTokens"], line["outputTokens"]) == (40, 10)
    assert "secret" not in json.dumps(line)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


async def test_a_request_is_logged_even_if_what_it_has_cost_cannot_be_stored(tmp_path: Path) -> None:
    store, model, path = BrokenStore(), WaitingModel(), tmp_path / "log.jsonl"
    secret = await stored_key(store, name="bob", day=Budget(tokens=5000))
    async with serving({"m": [model]}, store=store, log=RequestLog(path)) as gateway, asyncio.timeout(LIMIT_S):
        sending = asyncio.ensure_future(gateway.post(*request("openai-chat"), headers={"x-api-key": secret}))
        await model.asked.wait()
        store.is_broken = True
        sending.cancel()
        while not list(log_lines(path, follow=False)):  # noqa: ASYNC110 - written by another task
            await asyncio.sleep(0.01)
    assert [line["status"] for line in log_lines(path, follow=False)] == ["abandoned"]


def test_a_log_is_followed_from_one_file_to_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, old = tmp_path / "log.jsonl", tmp_path / "log.old.jsonl"
    waits = iter(range(20))
    monkeypatch.setattr(time, "sleep", lambda _: next(waits))  # ends the test if a line is never found
    old.write_text('{"n": 0}\n')  # from before, and not asked for
    path.write_text('{"n": 1}\n{"n": ')
    lines = log_lines(path, follow=True)
    assert next(lines) == {"n": 1}
    with path.open("a") as file:
        file.write("2}\n")
    path.replace(old)
    assert next(lines) == {"n": 2}  # while there is no file
    path.write_text('{"n": 3}\n')
    assert next(lines) == {"n": 3}
    path.write_text("")  # emptied by hand
    path.write_text('{"n":4}\n')
    assert next(lines) == {"n": 4}


async def test_a_full_log_that_another_gateway_has_renamed_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, old = tmp_path / "log.jsonl", tmp_path / "log.old.jsonl"
    monkeypatch.setattr("bartack_server.gateway.request_log._MAX_BYTES", 0)
    close, successors = os.close, [b"", b'{"new": 1}\n']

    def rename(descriptor: int) -> None:
        if path.exists() and os.path.samestat(os.fstat(descriptor), path.stat()):
            path.replace(old)
            if successor := successors.pop(0):
                path.write_bytes(successor)
        close(descriptor)

    log, outcome = RequestLog(path), RequestOutcome()
    facts = RequestFacts(stream=True)
    body = ClientRequest(
        format="openai-chat", model="m", streams=True, facts=facts, data=b"", body={}, headers={}, query={}
    )
    with monkeypatch.context() as patched:
        patched.setattr(os, "close", rename)
        for _ in range(2):
            log.write(NOW, key(), body, outcome)
    assert [line["model"] for line in log_lines(old, follow=False)] == ["m"]
    assert path.read_bytes() == b'{"new": 1}\n'
