"""The lines of a session file."""

from hypothesis import given
from hypothesis import strategies as st

from bartack.nouns import wire
from bartack.store.append import Row, prepare
from bartack.store.checksums import checksums_of
from bartack.store.jsonl.lines import join, read_texts, split
from tests.sample_session import SESSION

TEXTS = [wire.encode(entry) for entry in SESSION]
CHECKSUMS = checksums_of(TEXTS)
ROWS = [Row(*row[:-1], checksum) for row, checksum in zip(prepare("s", SESSION).rows, CHECKSUMS, strict=True)]
DATA = join(ROWS[:3]) + join(ROWS[3:4]) + join(ROWS[4:])


def test_lines_give_back_the_texts_and_checksums_that_were_joined() -> None:
    assert split(DATA) == (TEXTS, CHECKSUMS)
    assert read_texts(DATA) == (TEXTS, CHECKSUMS[-1])


@given(
    st.integers(1, len(DATA)), st.lists(st.integers(0, len(DATA)), max_size=3), st.sampled_from([b"\n", b" \n", b" "])
)
def test_reading_texts_agrees_with_splitting_wherever_the_file_ends_or_is_broken(
    end: int, places: list[int], inserted: bytes
) -> None:
    data = DATA[:end]
    for place in places:
        data = data[:place] + inserted + data[place:]
    texts, checksums = split(data)
    assert read_texts(data) == (texts, checksums[-1] or b"")


def test_a_damaged_checksum_leaves_the_text_as_it_was() -> None:
    damaged = DATA.replace(CHECKSUMS[2].hex().encode(), b"?" * 32)
    assert read_texts(damaged) == (TEXTS, CHECKSUMS[-1])
    assert split(damaged).checksums == [*CHECKSUMS[:2], None, *CHECKSUMS[3:]]
