"""What the JSON API says about all sessions of a user, as on the command line: a search, ranked, filtered and grouped,
and what they have used."""

from pathlib import Path
from typing import Any, get_args

from bartack.app.sessions import SessionFilter, home_path
from bartack.app.usage_report import GROUPINGS, usage_report
from bartack.nouns.errors import PartValidationError
from bartack.nouns.wire import dump
from bartack.store.index import Where
from bartack.store.ranking import SearchFilter, parse_search_time, parse_where, search_sessions
from bartack_server.web.endpoint import PAGE, Call, Endpoint, Query

__all__ = ["SESSION_SEARCH", "USAGE"]

_MAX_SESSIONS = 1000


async def _search(call: Call) -> Any:
    """The sessions that match best."""
    query, project = call.query("query"), call.query("project")
    if query is None:
        raise PartValidationError("The parameter query is missing.", path="$.query.query")
    if project is not None and not Path(project).is_absolute():
        raise PartValidationError("project must be an absolute path.", path="$.query.project")
    start = call.number("cursor", 0, maximum=_MAX_SESSIONS)
    end = min(start + call.limit, _MAX_SESSIONS)
    store = call.service.store
    chosen = SearchFilter(
        SessionFilter(store, call.query("origin"), None if project is None else Path(project)).accepts,
        model=call.query("model"),
        tool=call.query("tool"),
        since=parse_search_time(call.query("since"), path="$.query.since"),
        until=parse_search_time(call.query("until"), path="$.query.until"),
        errors_only=call.query("errors") == "true",
        where=parse_where(call.query("where"), path="$.query.where"),
    )
    sessions = await search_sessions(store, query, end + 1, prefix=call.user.prefix, chosen=chosen)
    following = str(end) if end < min(len(sessions), _MAX_SESSIONS) else None
    return {"items": [dump(session) for session in sessions[start:end]], "cursor": following}


async def _usage(call: Call) -> Any:
    """The sums of each group, and of all."""

    async def accepts(session_id: str) -> bool:
        return call.user.may_use(session_id)

    name = call.query("by") or "day"
    by = next((grouping for grouping in GROUPINGS if grouping == name), None)
    if by is None:
        raise PartValidationError(f"by must be one of {', '.join(GROUPINGS)}.", path="$.query.by")
    report = await usage_report(
        call.service.store,
        by,
        accepts=accepts,
        since=parse_search_time(call.query("since"), path="$.query.since"),
        until=parse_search_time(call.query("until"), path="$.query.until"),
    )
    rows = [dump(row) for row in report.rows]
    if by == "project":
        rows = [{**row, "name": home_path(row["name"])} for row in rows]
    return {"by": by, "items": rows, "total": dump(report.total), "cursor": None}


USAGE = Endpoint(
    "GET",
    "/api/usage",
    _usage,
    "Return the tokens and costs of all sessions, by day, project, agent or model.",
    query=(
        Query("by", "What to add up; by default days.", pattern=f"^({'|'.join(GROUPINGS)})?$"),
        Query("since", "Only what happened at this ISO 8601 time or later.", format="date-time"),
        Query("until", "Only what happened before this ISO 8601 time.", format="date-time"),
    ),
)


SESSION_SEARCH = Endpoint(
    "GET",
    "/api/search/sessions",
    _search,
    "Find the sessions that match best, each with its best entries.",
    query=(
        PAGE[0],
        Query("cursor", "The cursor of the last page.", "integer", 0, _MAX_SESSIONS),
        Query("query", "The words.", is_required=True, pattern=r"\S"),
        Query("origin", "Only sessions of this agent: `bartack`, or one that sessions were imported from."),
        Query(
            "project", "Only sessions that worked in this directory, an absolute path, or below it.", pattern="^(/|$)"
        ),
        Query("model", "Only sessions that used this model."),
        Query("tool", "Only calls of this tool, and their results."),
        Query("since", "Only what happened at this ISO 8601 time or later.", format="date-time"),
        Query("until", "Only what happened before this ISO 8601 time.", format="date-time"),
        Query("errors", "`true`: only failed tool calls and failed answers."),
        Query(
            "where", "Only in `text`, `results`, `calls` or `thinking`.", pattern=f"^({'|'.join(get_args(Where))})?$"
        ),
    ),
)
