"""`bartack usage`: tokens and costs of all sessions, those of other agents included."""

import sys
from collections.abc import Iterable, Iterator
from typing import Annotated

import typer

from bartack.app.safe_text import safe_line
from bartack.app.sessions import SessionFilter, home_path
from bartack.app.usage import format_cost
from bartack.app.usage_report import GROUPINGS, Grouping, UsageRow, UsageSums, usage_report
from bartack.cli.options import JsonOption, StoreOption, new_app
from bartack.cli.output import Row, columns, note, print_json, print_table
from bartack.cli.session_search import AgentOption, ProjectOption, SinceOption, UntilOption, local_time
from bartack.cli.store_access import with_store
from bartack.nouns.wire import dump
from bartack.store import SessionStore

app = new_app("Show the tokens and costs of all sessions.")

_COLUMNS = columns("~ sessions# calls# input# cached# output# cost# priced#")


@app.command(no_args_is_help=False)
def usage(
    by: Annotated[Grouping, typer.Option("--by", help=f"What to add up: {', '.join(GROUPINGS)}.")] = "day",
    *,
    agent: AgentOption = None,
    project: ProjectOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the tokens and costs of all sessions, by day, project, agent or model.

    'cost' is what the agents recorded: many record tokens only. 'priced' is what the same tokens cost at today's list
    prices. A plus sign means that there are calls without a cost, or without a price.
    """

    async def load(opened: SessionStore) -> UsageSums:
        return await usage_report(
            opened,
            by,
            accepts=SessionFilter(opened, agent, project).accepts,
            since=local_time(since),
            until=local_time(until, is_end=True),
        )

    report = with_store(store, load, for_reading=True)
    if as_json:
        print_json({"by": by, "items": list(map(dump, report.rows)), "total": dump(report.total)})
        return
    is_terminal = sys.stdout.isatty()
    print_table(_COLUMNS, _rows([*report.rows, report.total] if is_terminal else report.rows, by))
    if not report.rows:
        note("no usage")


def _rows(rows: Iterable[UsageRow], by: Grouping) -> Iterator[Row]:
    for row in rows:
        spend = row.spend
        counts = (row.sessions, spend.calls, spend.input_tokens, spend.cache_read_tokens, spend.output_tokens)
        name = home_path(row.name) if by == "project" else row.name
        yield safe_line(name) or "unknown", *map(str, counts), format_cost(spend), _price_text(row)


def _price_text(row: UsageRow) -> str:
    is_unknown = row.unpriced == row.spend.calls
    return "unknown" if is_unknown else f"${row.priced_usd:.4f}{'+' if row.unpriced else ''}"
