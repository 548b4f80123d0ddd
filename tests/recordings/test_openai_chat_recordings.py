"""Every recorded Chat Completions stream, decoded and compared with the oracle; every recorded request, read and encoded."""

from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from tests.recordings.agreement import FRAMINGS, assert_agrees, assert_cuts_change_nothing, decoded
from tests.recordings.oracle_openai import CHAT_APIS, read_stream, stream_error
from tests.recordings.plain import PlainReading, case_dirs, load_case
from weft.decode.openai_chat import OpenAIChat
from weft.deltas import Failed

STREAMS = [case for api in CHAT_APIS for case in case_dirs(api) if load_case(case).http_status < 400]


def name_of(case: Path) -> str:
    return f"{case.parent.name}/{case.name}"


every_stream = pytest.mark.parametrize("case_dir", STREAMS, ids=name_of)


def decoder_for(case_dir: Path) -> OpenAIChat:
    return OpenAIChat(framing=FRAMINGS[Path(load_case(case_dir).file).suffix])


def with_local_ids(reading: PlainReading) -> PlainReading:
    """D-3.8.1: where the provider sent no id, the decoder makes one."""
    made = count(1)
    calls = [replace(call, provider_id=call.provider_id or f"local-{next(made)}") for call in reading.calls]
    return replace(reading, calls=calls)


@every_stream
def test_the_deltas_say_what_the_oracle_read(case_dir: Path) -> None:
    deltas = decoded(decoder_for(case_dir), load_case(case_dir).body)
    assert_agrees(deltas, with_local_ids(read_stream(case_dir.parent.name, case_dir)))
    error = stream_error(case_dir)
    if error is not None:
        assert isinstance(deltas[-1], Failed)
        assert (deltas[-1].raw_code, deltas[-1].message) == error


@every_stream
def test_cutting_the_bytes_differently_changes_nothing(case_dir: Path) -> None:
    """D-3.11.1."""
    assert_cuts_change_nothing(lambda: decoder_for(case_dir), load_case(case_dir).body)
