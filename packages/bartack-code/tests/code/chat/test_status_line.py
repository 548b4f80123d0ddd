"""The line below the prompt."""

from hypothesis import example, given
from hypothesis import strategies as st
from rich.cells import cell_len

from bartack.app.safe_text import safe_text
from bartack.app.usage import SessionUsage
from bartack.store import Spend
from bartack_code.chat.status_line import status_facts, status_pieces


@given(
    model=st.text(max_size=80),
    tokens=st.none() | st.integers(0, 10**9),
    window=st.none() | st.integers(0, 10**7),
    session=st.none() | st.text(max_size=60),
    width=st.integers(1, 200),
)
@example(model="模型模型", tokens=1, window=2, session=None, width=4)
def test_it_fits_and_has_no_control_characters(
    model: str, tokens: int | None, window: int | None, session: str | None, width: int
) -> None:
    facts = status_facts(model, SessionUsage(Spend(calls=1), tokens), window=window, session=session)
    line = status_pieces(facts, width=width, first="Ctrl-C to stop", last="/help")
    assert cell_len(line) <= width
    assert line == safe_text(line)
    assert "\n" not in line


def test_wider_windows_show_more() -> None:
    usage = SessionUsage(Spend(calls=2, input_tokens=1_200, output_tokens=300, cost_usd=0.25, unpriced=0), 1_000)
    facts = status_facts("a:b", usage, window=4_000, session="s")
    lines = [status_pieces(facts, width=width, last="/help") for width in (20, 40, 60, 100)]
    assert lines == sorted(lines, key=len)
    assert lines[0].strip().startswith("a:b")
    assert lines[-1] == " a:b · context 1.0k of 4.0k (25 %) · 1.5k tokens · $0.2500 · session s · /help"
