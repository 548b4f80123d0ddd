"""What is specific to the PostgreSQL store: triggers, groups, settings, migrations, notifications."""

import asyncio
import gc
import inspect
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import asyncpg  # type: ignore[import-untyped]
import pytest
from msgspec.structs import replace

from bartack.nouns.deltas import MessageDelta, TextDelta
from bartack.nouns.entries import MessageDeltaBatch, Redaction, SessionHeader
from bartack.nouns.errors import Conflict, ErrorCode, LeaseLost, NotFound, StoreError
from bartack.nouns.messages import assistant, tool_message, user
from bartack.nouns.parts import Image, ToolCall, ToolResult
from bartack.store import Tail, next_entries, open_store
from bartack.store.append_only import ReadableTables
from bartack.store.maintenance import check, purge
from bartack.store.postgres import PostgresStore
from bartack.store.postgres.connection import Database, server_error
from bartack.store.postgres.notifications import Notifications
from bartack.store.postgres.queries import Queries
from bartack.store.postgres.rows import lease_text
from bartack.store.postgres.schema import MIGRATIONS, migrate
from tests.sample_session import SESSION, chain
from tests.store.postgres_server import SERVER, address, schema_of
from tests.store.stores import HANG_S, add, following


@pytest.fixture
def url(request: pytest.FixtureRequest, fast_path: Path, tmp_path: Path) -> str:
    """The address of a store. Tests that damage the schema itself get one that is not used again."""
    return address(str(tmp_path if getattr(request, "param", None) == "own" else fast_path))


own_schema = pytest.mark.parametrize("url", ["own"], indirect=True)


@pytest.fixture
async def store(url: str) -> AsyncIterator[PostgresStore]:
    store = await PostgresStore.open(url)
    yield store
    await store.close()


@pytest.fixture
async def database(url: str) -> AsyncIterator[Any]:
    """A direct connection to the schema of the store."""
    connection = await asyncpg.connect(SERVER, server_settings={"search_path": schema_of(url)})
    yield connection
    await connection.close()


# -- triggers


@pytest.mark.parametrize(
    ("statement", "refusal"),
    [
        ("UPDATE entries SET text = 'x' WHERE seq = 1", "is append-only"),
        ("DELETE FROM entries WHERE seq = 13", "is append-only"),
        ("TRUNCATE entries", "is append-only"),
        ("UPDATE results SET seq = 1", "is append-only"),
        ("DELETE FROM results", "is append-only"),
        ("UPDATE blobs SET data = 'x'", "is append-only"),
        ("DELETE FROM blobs", "is append-only"),
        ("DELETE FROM blob_uses", "is append-only"),
        ("TRUNCATE redactions", "is append-only"),
        ("TRUNCATE branches", "is append-only"),
        ("SELECT set_config('bartack.purge', 'other', false); DELETE FROM entries", "is append-only"),
        (
            "INSERT INTO entries SELECT session, 15, false, 'x', 'x', '{}' FROM entries WHERE seq = 13",
            "seq 14 is missing",
        ),
        ("INSERT INTO entries SELECT session, 13, false, 'x', 'x', '{}' FROM entries WHERE seq = 13", "entries_pkey"),
        (
            "INSERT INTO entries SELECT session, 14, false, key, 'x', '{}' FROM entries WHERE seq = 13",
            "entries_session_key_key",
        ),
        ("INSERT INTO entries SELECT session, 0, false, 'x', 'x', '{}' FROM entries WHERE seq = 13", "seq_check"),
        ("INSERT INTO results SELECT session, 14, call FROM results LIMIT 1", "results_pkey"),
    ],
)
async def test_the_database_refuses_changes_by_other_programs(statement: str, refusal: str) -> None:
    """D-5.3, D-5.4, 004-invariants.3"""
    url = address("refusals")  # shared: refused statements change nothing
    store = await PostgresStore.open(url)
    database = await asyncpg.connect(SERVER, server_settings={"search_path": schema_of(url)})
    await store.append("s", SESSION, None)
    (header, picture) = chain(SessionHeader(), user(Image("image/png", data=b"x" * 100_000)))
    await store.append("t", [replace(entry, session_id="t") for entry in (header, picture)], None)
    assert await database.fetchval("SELECT count(*) FROM blobs") == 1
    with pytest.raises(asyncpg.PostgresError, match=refusal):
        await database.execute(statement)
    assert await store.load("s") == SESSION
    await database.close()
    await store.close()


async def test_a_blob_is_stored_once_and_deleted_with_its_last_session(store: PostgresStore, database: Any) -> None:
    for name in ("s", "t"):
        await store.create_session(name)
        await add(store, name, user(Image("image/png", data=b"x" * 100_000)))
    assert await database.fetchval("SELECT count(*) FROM blobs") == 1
    await store.drop_session("s")
    assert await database.fetchval("SELECT count(*) FROM blobs") == 1
    await store.drop_session("t")
    assert await database.fetchval("SELECT count(*) FROM blobs") == 0


async def test_no_row_of_a_purged_session_stays_in_any_table(store: PostgresStore, url: str, database: Any) -> None:
    await store.create_session("s", SessionHeader(title="zebra"))
    secret, _ = await add(store, "s", user("quagga " + "q" * 70_000), user("okapi"))
    await add(store, "s", Redaction(entry_id=secret.id))

    async def tables_with(word: str) -> list[str]:
        matching = []
        for record in await database.fetch("SELECT tablename FROM pg_tables WHERE schemaname = $1", schema_of(url)):
            table = record["tablename"]
            rows = await database.fetch(f"SELECT * FROM {table}")
            matching += [table] * any(word in str(value) for row in rows for value in row.values())
        return matching

    assert "blobs" in await tables_with("q" * 70_000)
    new_id = await purge(store, "s")
    assert (await tables_with("quagga"), await tables_with("q" * 70_000)) == ([], [])
    assert new_id is not None
    assert await tables_with("okapi") == ["entries"]


DAMAGE = {
    "UPDATE entries SET text = replace(text, 'Paris', 'Basel')": "does not match its checksum",
    "UPDATE entries SET checksum = 'x' WHERE seq = 3": "does not match its checksum",
    "UPDATE entries SET key = 'x' WHERE seq = 3": "is stored under another id or seq",
    "UPDATE entries SET needs_restore = NOT needs_restore": "recorded wrongly",
    "UPDATE entries SET words = '{1}' WHERE seq = 3": "the search index is wrong",
    "DELETE FROM entries WHERE text LIKE '%redaction%'": "is not the recorded tail",
    "DELETE FROM entries WHERE seq = 5": "does not match its checksum",
    "UPDATE sessions SET tail_seq = 2 WHERE id = 's'": "is not the recorded tail",
    "UPDATE sessions SET checksum = 'x' WHERE id = 's'": "is not the recorded tail",
    "UPDATE sessions SET title = 'other' WHERE id = 's'": "the recorded title is 'other'",
    "UPDATE sessions SET updated = '2020' WHERE id = 's'": "the recorded updated is '2020'",
    "UPDATE sessions SET lease = replace(lease, 'owner', 'other') WHERE id = 's'": "the lease is damaged",
    "UPDATE sessions SET fence = 'x' WHERE id = 's'": "the lease is damaged",
    "UPDATE journal SET text = replace(text, 'hi', 'ho')": "batch 0 of the journal is damaged",
    "UPDATE blobs SET data = 'x'": "was altered",
    "DELETE FROM blobs": "is missing",
    "DELETE FROM blob_uses": "the index of blobs is wrong",
    "UPDATE results SET seq = 1": "the index of results is wrong",
    "INSERT INTO branches SELECT number, 5, 1 FROM sessions WHERE id = 's'": "the index of branches is wrong about 5",
    "DELETE FROM redactions": "the index of redactions is wrong",
    "UPDATE spend SET calls = 7": "the recorded usage of model",
    "DELETE FROM sessions WHERE id = 's'": "entries has rows of a session that does not exist",
}


@pytest.mark.parametrize(("sql", "expected"), DAMAGE.items(), ids=DAMAGE.keys())
async def test_the_check_finds_damage_to_any_table(
    store: PostgresStore, database: Any, sql: str, expected: str
) -> None:
    await store.append("s", SESSION, None)
    await add(store, "s", user("x" * 70_000), Redaction(entry_id=SESSION[-1].id))
    await store.create_session("other")
    lease = await store.acquire_lease("s", "owner")
    deltas = (MessageDelta("run", 0, TextDelta("hi"), store.environment.now()),)
    await store.write_journal(lease, MessageDeltaBatch(deltas=deltas, generation=1, number=0))
    assert [finding for finding in await check(store) if finding.fault != "dangling_call"] == []
    async with database.transaction():
        await database.execute("SET LOCAL session_replication_role = replica")  # without triggers
        await database.execute(sql)
    messages = [finding.message for finding in await check(store)]
    assert any(expected in message for message in messages), messages
    await add(store, "other", user("the other session is usable"))


# -- round trips


async def test_an_append_is_one_statement(store: PostgresStore) -> None:
    """Which is its own transaction: a client that stops cannot hold a lock while the server waits for it."""
    header = await store.create_session("s")
    lease = await store.acquire_lease("s", "owner")
    connection: Any = await store._writer._connected()
    statements: list[str] = []
    connection.add_query_logger(lambda record: statements.append(record.query))
    entries = following(header, *(user(f"{number}") for number in range(5)))
    for before, entry in zip((header, *entries), entries, strict=False):
        await store.append("s", [entry], before.id, lease=lease)
    assert [statement.partition("(")[0] for statement in statements] == ["SELECT bartack_append"] * 5
    statements.clear()
    other_lease = await store.acquire_lease("s", "other", takeover=True)
    later = following(entries[-1], user("after"))
    with pytest.raises(LeaseLost):
        await store.append("s", later, entries[-1].id, lease=lease)
    await store.append("s", later, entries[-1].id, lease=other_lease)
    assert len(statements) == 2  # a look for the first, one statement for the second


async def test_what_another_store_changed_is_looked_up_again(store: PostgresStore, url: str) -> None:
    other_store = await PostgresStore.open(url)
    header = await store.create_session("s")
    first, second = following(header, user("one")), following(header, user("two"))
    await other_store.append("s", first, header.id)
    with pytest.raises(Conflict) as caught:  # this store still knows the old tail
        await store.append("s", second, header.id)
    assert caught.value.tail == first[0].id
    await store.append("s", first, header.id)  # stored already
    await other_store.drop_session("s")
    with pytest.raises(NotFound):
        await store.append("s", following(first[0]), first[0].id)
    await other_store.create_session("s")
    await other_store.close()


async def test_a_client_that_stops_does_not_delay_others(store: PostgresStore, url: str) -> None:
    """The connection of the stopped client no longer reads anything, but its last statement is complete."""
    other_store = await PostgresStore.open(url)
    await other_store.create_session("its")
    header = await store.create_session("mine")
    connection: Any = await other_store._writer._connected()
    connection._transport.pause_reading()
    stopped = asyncio.create_task(add(other_store, "its", user("stopped")))
    async with asyncio.timeout(HANG_S):
        assert (await anext(store.follow("its", after_seq=1))).seq == 2
        await store.append("mine", following(header), header.id)
        await add(store, "its", user("the same session too"))
        connection._transport.resume_reading()
        await stopped
    await other_store.close()


async def test_an_append_reads_no_more_of_its_session_than_the_last_entry(store: PostgresStore, database: Any) -> None:
    """Also in a new database, which has no statistics about its tables yet."""
    fetched = "SELECT idx_tup_fetch FROM pg_stat_xact_user_tables WHERE relid = 'entries'::regclass"
    insert = (
        "INSERT INTO entries (session, seq, needs_restore, key, checksum, text) "
        "SELECT 7, seq, false, decode(md5(seq::text), 'hex'), '', '' FROM generate_series($1::int, $2::int) AS seq"
    )
    async with database.transaction():
        await database.execute(insert, 1, 1)  # the plan is made for one row
        await database.execute(insert, 2, 200)
        before = await database.fetchval(fetched)
        await database.execute(insert, 201, 201)
        assert await database.fetchval(fetched) - before <= 2


async def test_too_many_clients_is_a_retryable_error() -> None:
    error = server_error(asyncpg.TooManyConnectionsError("sorry, too many clients already"), "connecting")
    assert error.retryable


# -- groups


async def test_a_refused_append_does_not_affect_its_group(store: PostgresStore, database: Any) -> None:
    """The database refuses one append because of a row that the store does not look up; only that one fails."""
    headers = [await store.create_session(f"s{number}") for number in range(10)]
    questions = [(await add(store, header.session_id, user("one"), user("two")))[0] for header in headers]
    await database.execute("INSERT INTO branches SELECT number, 4, 1 FROM sessions WHERE id = 's4'")

    async def branch_off(number: int) -> Tail:
        tail = await store.tail_of(f"s{number}")
        (entry,) = next_entries(f"s{number}", tail, [user("b")], store.environment, parent_id=questions[number].id)
        return await store.append(f"s{number}", [entry], tail.entry_id)

    outcomes = await asyncio.gather(*map(branch_off, range(10)), return_exceptions=True)
    assert [number for number, outcome in enumerate(outcomes) if not isinstance(outcome, Tail)] == [4]
    assert isinstance(outcomes[4], Conflict)
    assert len(await store.entries("s4")) == 3
    assert [len(await store.entries(f"s{number}")) for number in (3, 5)] == [4, 4]


async def test_appends_of_one_group_see_each_other(store: PostgresStore) -> None:
    """Pipelined appends are stored in order; of two for the same position, the second gets a conflict with the tail."""
    header = await store.create_session("s")
    first = following(header, assistant(ToolCall("c", "clock", {})))
    second = following(first[0], tool_message(ToolResult("c", "noon")))
    rival = following(first[0], user("rival"))
    twice = following(second[0], tool_message(ToolResult("c", "midnight")))
    outcomes = await asyncio.gather(
        store.append("s", first, header.id),
        store.append("s", second, first[0].id),
        store.append("s", rival, first[0].id),
        store.append("s", second, first[0].id),
        store.append("s", twice, second[0].id),
        return_exceptions=True,
    )
    assert list(outcomes[:2]) == [Tail(first[0].id, 2), Tail(second[0].id, 3)]
    assert outcomes[3] == outcomes[1]
    assert [getattr(outcomes[place], "tail", None) for place in (2, 4)] == [second[0].id, second[0].id]
    assert await store.load("s") == [header, *first, *second]


async def test_a_cancelled_append_does_not_affect_others(store: PostgresStore) -> None:
    header = await store.create_session("s")
    cancelled = asyncio.create_task(store.append("s", following(header), header.id))
    await asyncio.sleep(0)
    cancelled.cancel()
    await store.create_session("t")
    assert cancelled.cancelled() or await asyncio.wait({cancelled})
    assert (await store.tail_of("s")).seq in (1, 2)


async def test_a_cancelled_read_ends_by_itself(url: str) -> None:
    """Cancelling a query opens another connection, and may lose this one."""
    database = Database(url)
    await database.open_pool()
    started, ended = asyncio.Event(), asyncio.Event()

    async def slow(connection: Any) -> None:
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            started.set()
            await connection.execute("SELECT pg_sleep(0.2)")
        ended.set()

    reading = asyncio.create_task(database.read(slow, "reading"))
    await started.wait()
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    async with asyncio.timeout(HANG_S):
        await ended.wait()
    await database.close()


async def test_a_lease_expires_although_the_clock_was_set_back(store: PostgresStore, database: Any) -> None:
    """A lease from before the clock of the server was set back by an hour."""
    await store.create_session("s")
    lease = await store.acquire_lease("s", "dead")
    late = replace(lease, expires_at=lease.expires_at + timedelta(hours=1))
    await database.execute("UPDATE sessions SET lease = $1", lease_text(late))
    assert (await store.acquire_lease("s", "next")).epoch == lease.epoch + 1


def test_the_queries_have_the_methods_of_a_readable_store() -> None:
    """Types cannot express that they are the same but for being coroutines."""
    names = {name for name in vars(ReadableTables) if not name.startswith("_")}
    assert names == {name for name in vars(Queries) if not name.startswith("_")}
    for name in names:
        assert inspect.signature(getattr(Queries, name)) == inspect.signature(getattr(ReadableTables, name)), name
        assert inspect.iscoroutinefunction(getattr(Queries, name))


# -- opening


async def test_a_server_that_may_lose_entries_is_refused_unless_allowed_by_name(tmp_path: Path) -> None:
    url = address(str(tmp_path), query="")
    server = Database(url)
    server.url = Database(f"{url}&synchronous_commit=off").url  # the setting of the server, not of the address
    with pytest.raises(StoreError, match="synchronous_commit=off") as caught:
        await server.connect()
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    allowed = await open_store(f"{url}&synchronous_commit=off")
    await allowed.create_session("s")
    await allowed.close()
    safe = await PostgresStore.open(url)
    assert len(await safe.load("s")) == 1
    await safe.close()


async def test_an_unreachable_server_is_a_retryable_error() -> None:
    with pytest.raises(StoreError, match="PostgreSQL error while connecting") as caught:
        await PostgresStore.open("postgresql://user@127.0.0.1:1/none")
    assert caught.value.retryable


async def test_an_invalid_parameter_is_named() -> None:
    with pytest.raises(StoreError, match="`sslmode` parameter must be one of"):
        await PostgresStore.open("postgresql://u@127.0.0.1:1/none?sslmode=maybe")


async def test_a_missing_database_is_named(url: str) -> None:
    with pytest.raises(StoreError, match='"bartack_no_such_database" does not exist'):
        await PostgresStore.open(SERVER.rpartition("/")[0] + "/bartack_no_such_database")


@own_schema
async def test_a_newer_store_and_a_foreign_schema_are_refused(url: str, database: Any) -> None:
    await (await PostgresStore.open(url)).close()
    await database.execute("INSERT INTO schema_version VALUES (99, now())")
    with pytest.raises(StoreError, match="schema version 99") as caught:
        await PostgresStore.open(url)
    assert caught.value.code is ErrorCode.STORAGE_UNSUPPORTED
    await database.execute("DROP TABLE schema_version")
    with pytest.raises(StoreError, match="tables of another program"):
        await PostgresStore.open(url)


@own_schema
async def test_a_read_only_store_writes_nothing(url: str, database: Any) -> None:
    await database.execute(f"DROP SCHEMA IF EXISTS {schema_of(url)} CASCADE")
    with pytest.raises(StoreError, match="contains no store"):
        await open_store(url, read_only=True)
    writer = await PostgresStore.open(url)
    await writer.create_session("s")
    lease = await writer.acquire_lease("s", "owner")
    reader = await open_store(url, read_only=True)
    assert [info.id for info in (await reader.sessions()).items] == ["s"]
    for write in (reader.create_session("t"), reader.renew_lease(lease), reader.drop_session("s")):
        with pytest.raises(StoreError, match="was opened read-only"):
            await write
    assert await check(reader) == []
    await reader.close()
    await writer.close()


@own_schema
async def test_ten_stores_can_create_a_schema_at_once(url: str, database: Any) -> None:
    stores = await asyncio.gather(*(PostgresStore.open(url) for _ in range(10)))
    await stores[3].create_session("s")
    assert [len(await store.load("s")) for store in stores] == [1] * 10
    await asyncio.gather(*(store.close() for store in stores))
    assert await database.fetchval("SELECT count(*) FROM schema_version") == len(MIGRATIONS)


@own_schema
async def test_stores_of_every_version_are_migrated(url: str, database: Any) -> None:
    """With one step more than today: stored entries stay, and a failing step changes nothing."""
    server = Database(url)
    connection = await server.connect()
    extra = "ALTER TABLE sessions ADD COLUMN IF NOT EXISTS colour text DEFAULT 'blue'"
    for version in range(len(MIGRATIONS) + 1):
        await database.execute(f"DROP SCHEMA IF EXISTS {server.schema} CASCADE")
        await migrate(connection, server.schema, MIGRATIONS[:version] or MIGRATIONS)
        store = await PostgresStore.open(url)
        await store.append("s", SESSION, None)
        with pytest.raises(asyncpg.PostgresError):
            await migrate(connection, server.schema, [*MIGRATIONS, f"{extra}; SELECT 1/0"])
        assert await database.fetchval("SELECT max(version) FROM schema_version") == len(MIGRATIONS)
        for _ in range(2):
            await migrate(connection, server.schema, [*MIGRATIONS, extra])
        assert await database.fetchval("SELECT colour FROM sessions") == "blue"
        assert await store.load("s") == SESSION
        await store.close()
    for statements in MIGRATIONS:  # each may run again
        await connection.execute(statements)
    await connection.close(timeout=5)


# -- following


async def test_notifications_show_no_session_ids_and_stay_in_their_schema(
    store: PostgresStore, database: Any, tmp_path: Path
) -> None:
    heard: list[tuple[str, str]] = []
    names = {Notifications(Database(url), lambda _: None).channel for url in (address(str(tmp_path)), SERVER)}
    assert len(names) == 2
    channel = store._notifications.channel
    await database.add_listener(channel, lambda *arguments: heard.append(arguments[2:]))
    await store.create_session("secret-project")
    await store._notifications.close()
    await database.execute("SELECT 1")  # notifications arrive with the next answer at the latest
    assert [name for name, _ in heard] == [channel]
    assert "secret-project" not in heard[0][1]


async def test_a_follower_is_woken_by_notifications(
    store: PostgresStore, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PostgresStore, "poll_s", 10 * HANG_S)
    other_store = await PostgresStore.open(url)
    await store.create_session("s")
    follower = store.follow("s")
    async with asyncio.timeout(HANG_S):
        assert (await anext(follower)).seq == 1
        for seq in range(2, 30):
            await add(other_store, "s", user(str(seq)))
            if seq % 3 == 0:
                assert [(await anext(follower)).seq for _ in range(3 if seq > 3 else 2)][-1] == seq
    await other_store.close()


async def test_a_follower_polls_when_notifications_are_lost(
    store: PostgresStore, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PostgresStore, "poll_s", 0.05)
    monkeypatch.setattr(Notifications, "send", lambda self, session_ids: None)
    other_store = await PostgresStore.open(url)
    await store.create_session("s")
    follower = store.follow("s", after_seq=1)
    waiting = asyncio.ensure_future(anext(follower))
    await add(other_store, "s", user("hi"), user("there"))
    async with asyncio.timeout(HANG_S):
        assert [(await waiting).seq, (await anext(follower)).seq] == [2, 3]
    await other_store.close()


async def test_followers_survive_lost_connections(
    store: PostgresStore, url: str, database: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PostgresStore, "poll_s", 0.05)
    await store.create_session("s")
    follower = store.follow("s")
    assert (await anext(follower)).seq == 1
    for seq in range(2, 5):
        await database.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1 AND query LIKE $2",
            f"bartack/{schema_of(url)}",
            "%" if seq == 3 else "%LISTEN%",
        )
        await add(store, "s", user("hi"))
        async with asyncio.timeout(HANG_S):
            assert (await anext(follower)).seq == seq


def test_a_second_event_loop_is_refused(url: str) -> None:
    with asyncio.Runner() as first:
        store = first.run(PostgresStore.open(url))
        for call in (store.create_session, store.sessions):
            with pytest.raises(StoreError, match="opened in another event loop"):
                asyncio.run(call())
        first.run(store.create_session("s"))
        first.run(store.close())


async def test_a_read_that_fails_after_its_caller_was_cancelled_is_not_reported() -> None:
    """As happens to many followers when a server restarts."""
    reports: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reports.append(context))
    database = Database("postgresql://nobody@127.0.0.1:1/none")
    await database.open_pool()
    reading = asyncio.create_task(database.read(lambda connection: connection.fetchval("SELECT 1"), "reading"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    (read,) = database._reads
    reading.cancel()
    await asyncio.wait([read, reading])
    del read, reading
    gc.collect()
    assert reports == []
    await database.close()


async def test_a_connection_that_is_cancelled_while_it_is_checked_is_closed(url: str) -> None:
    class Checking(Database):
        begun = asyncio.Event()

        async def _check(self, connection: Any) -> None:
            self.connection = connection
            self.begun.set()
            await asyncio.Event().wait()

    checking = Checking(url)
    task = asyncio.create_task(checking.connect())
    await asyncio.wait_for(checking.begun.wait(), HANG_S)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert checking.connection.is_closed()
