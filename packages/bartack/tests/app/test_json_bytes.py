"""JSON for a terminal has no control characters."""

import json

from hypothesis import given
from hypothesis import strategies as st

from bartack.app.safe_text import json_bytes

TEXT = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from('\x1b[]0;m\x07\\"\r\n\x9b\u202e'))


@given(TEXT)
def test_json_is_printable_and_reads_back(text: str) -> None:
    data = json_bytes({text: [text]})
    assert data.decode().isprintable()
    assert json.loads(data) == {text: [text]}
