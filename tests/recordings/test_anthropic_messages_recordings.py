"""Every recorded Anthropic stream, decoded and compared with the oracle; every recorded request, read and encoded."""

from pathlib import Path

import pytest

from tests.recordings.agreement import FRAMINGS, assert_agrees, assert_cuts_change_nothing, decoded
from tests.recordings.oracle_others import read_stream
from tests.recordings.plain import case_dirs, load_case
from weft.decode.anthropic_messages import AnthropicMessages

STREAMS = [case for case in case_dirs("anthropic-messages") if load_case(case).http_status < 400]


def decoder_for(case_dir: Path) -> AnthropicMessages:
    suffix = Path(load_case(case_dir).file).suffix
    return AnthropicMessages(framing=FRAMINGS[suffix])


@pytest.mark.parametrize("case_dir", STREAMS, ids=lambda path: path.name[-30:])
def test_the_deltas_say_what_the_oracle_read(case_dir: Path) -> None:
    deltas = decoded(decoder_for(case_dir), load_case(case_dir).body)
    assert_agrees(deltas, read_stream("anthropic-messages", case_dir))


@pytest.mark.parametrize("case_dir", STREAMS, ids=lambda path: path.name[-30:])
def test_cutting_the_bytes_differently_changes_nothing(case_dir: Path) -> None:
    assert_cuts_change_nothing(lambda: decoder_for(case_dir), load_case(case_dir).body)
