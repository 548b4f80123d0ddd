"""The header for the trace of a request, and the log of HTTP exchanges."""

import logging
import re

import pytest

from bartack import PartValidationError, connect, user
from bartack.models import RequestMetadata
from bartack.testing.faults import EVENT_WRITERS
from tests.counting import counting_environment
from tests.models.doubles import KEY, BytesClient, read

SAY = EVENT_WRITERS["anthropic-messages"]
WHOLE = (SAY.start(), SAY.text("SECRET"), SAY.finish("stop"))
TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
TRACEPARENT = f"00-{TRACE_ID}-b7ad6b7169203331-00"


async def headers_for(trace_id: str | None) -> dict[str, str]:
    client = BytesClient(WHOLE)
    model = connect("anthropic:claude", api_key=KEY, client=client, environment=counting_environment())
    await read(model.stream([user("Hi")], request_metadata=RequestMetadata(trace_id=trace_id)))
    headers = {name.lower(): value for name, value in client.requests[0].headers.items()}
    return {name: value for name, value in headers.items() if "trace" in name}


async def test_a_w3c_trace_id_is_sent_as_traceparent() -> None:
    """001-4.1.5"""
    assert await headers_for(None) == {}
    assert await headers_for(TRACEPARENT) == {"traceparent": TRACEPARENT}
    (value,) = (await headers_for(TRACE_ID)).values()
    assert re.fullmatch(f"00-{TRACE_ID}-(?!0{{16}})[0-9a-f]{{16}}-01", value)


@pytest.mark.parametrize(
    "trace_id",
    [
        "order-7",
        "0" * 32,
        TRACE_ID.upper(),
        TRACE_ID[1:],
        f"00-{TRACE_ID}-{'0' * 16}-01",
        f"00-{'0' * 32}-b7ad6b7169203331-01",
        f"ff-{TRACE_ID}-b7ad6b7169203331-01",
    ],
)
async def test_any_other_id_has_its_own_header(trace_id: str) -> None:
    """001-4.1.5: a traceparent that is not valid would be dropped, or break the caller's trace."""
    assert await headers_for(trace_id) == {"x-bartack-trace-id": trace_id}


async def test_an_id_that_cannot_be_a_header_is_refused() -> None:
    with pytest.raises(PartValidationError):
        await headers_for("a\nb")


async def test_an_exchange_is_logged_without_content_or_key(caplog: pytest.LogCaptureFixture) -> None:
    """001-4.1.5"""
    caplog.set_level(logging.DEBUG, logger="bartack.models")
    client = BytesClient(WHOLE)
    metadata = RequestMetadata(session_id="s", run_id="r", trace_id=TRACE_ID)
    await read(
        connect("anthropic:claude", api_key=KEY, client=client).stream([user("SECRET")], request_metadata=metadata)
    )
    (record,) = [record for record in caplog.records if record.name.startswith("bartack")]
    assert (record.name, record.getMessage()) == ("bartack.models", "claude of api.anthropic.com: HTTP 200")
    assert (record.session_id, record.run_id, record.trace_id) == ("s", "r", TRACE_ID)  # type: ignore[attr-defined]
    assert "SECRET" not in repr(vars(record))
    assert KEY not in repr(vars(record))
