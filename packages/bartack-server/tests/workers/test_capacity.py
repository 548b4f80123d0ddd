"""The page about capacity: its SQL works on a store that is in use afterwards, and its tables are made of a result."""

import re
from typing import Any

import asyncpg  # type: ignore[import-untyped]

from bartack import user
from bartack.store import open_store
from bartack.store.maintenance import check
from lab.capacity import PAGE, extrapolated, growth, measured
from lab.repository import fill_section
from tests.store import postgres_server
from tests.store.stores import add

PARTITIONING, ARCHIVING = re.findall(r"```sql\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


async def test_the_table_of_entries_can_be_partitioned_and_sessions_archived() -> None:
    address = postgres_server.address("capacity")  # no folder: the schema is not used again
    schema = postgres_server.schema_of(address)
    store = await open_store(address)
    await store.create_session("old")
    await add(store, "old", user("before the partition"))
    connection = await asyncpg.connect(postgres_server.SERVER)
    await connection.execute(PARTITIONING.replace("= bartack;", f"= {schema};"))
    await add(store, "old", user("after the partition"))
    await store.create_session("new")
    await add(store, "new", user("in another partition"))
    counts = await connection.fetch(
        f"SELECT tableoid::regclass::text AS part FROM {schema}.entries GROUP BY 1 ORDER BY 1"
    )
    assert [row["part"].rpartition(".")[2] for row in counts] == ["entries_1", "entries_2"]
    assert [len(await store.search("partition")), await check(store, "old"), await check(store, "new")] == [3, [], []]

    archiving = ARCHIVING.replace("\\copy archived FROM 'ids'", "INSERT INTO archived VALUES ('old');")
    archiving = archiving.replace("= bartack;", f"= {schema};").replace("2026-01-01", "9999-01-01")
    *statements, last = archiving.strip().rstrip(";").split(";")
    for statement in statements:
        await connection.execute(statement)
    assert await connection.fetchval(last) == 1
    await connection.close()
    assert [info.id for info in (await store.sessions()).items] == ["new"]
    await store.close()


RUN = {"cpu_ms": 20.0, "server_cpu_ms": 5.0, "commits": 10.0, "wal_bytes": 10_240.0, "table_bytes": 4096.0}
MORE = {"engine_table_bytes": 1024.0, "runs_per_s": 50.0, "connections": 15.0, "ratio": 1.0}


def test_the_tables_are_made_of_the_result_of_the_benchmark() -> None:
    kind = "PostgreSQL, DBOS"
    result: dict[str, list[dict[str, Any]]] = {
        "throughput": [{"kind": kind, "workers": count, **RUN, **MORE} for count in (0, 1, 4)],
        "steps": [{"kind": kind, "queue": queue, **RUN, **MORE} for queue in (None, "dbos")],
        "streaming": [{"kind": kind, **RUN, **MORE}],
        "idle": [{"kind": kind, **RUN, **MORE}],
        "depth": [{"kind": kind, "depth": 10, "ratio": 1.0, "job_cpu_ms": 1.0, "enqueue_ms": 2.0, "start_s": 3.0}],
        "stored": [{"sessions": 1000, **RUN, "ratio": 1.0, "list_ms": 1, "search_ms": 2, "bytes_per_session": 2048.0}],
    }
    assert "| runs per second, with 1, 4 workers | 50, 50 |" in measured(result)
    assert "| PostgreSQL, DBOS: 10 jobs wait | 1.0 ms (1.0 x) |" in growth(result)
    table = extrapolated(result)
    assert "| runs per second | 50 (4.3 million per day) | 8 (0.7 million per day) |" in table
    assert "| connections | 1,500 | 1,500 |" in table
    assert "| commits per second | 12,000 | " in table  # 50 runs of (1 + 1 + 20) x 10, and 100 workers x 10
    page = "Before.\n<!-- growth -->\nold\n<!-- end -->\nAfter.\n"
    assert fill_section(page, "growth", "new") == "Before.\n<!-- growth -->\nnew\n<!-- end -->\nAfter.\n"
