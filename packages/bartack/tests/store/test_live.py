"""Positions of a reader that follows a session while an answer arrives."""

import pytest

from bartack.nouns.errors import StoreError
from bartack.store.live import Position


@pytest.mark.parametrize(
    "position", ["x", "-1", "9" * 19, "\u0663", "run:1", "run:a:1", "a:b:c:d:e", "run:1:2:x", "a\nid: b:1:2"]
)
def test_an_invalid_position_is_refused(position: str) -> None:
    with pytest.raises(StoreError, match="Invalid position"):
        Position.parse(position)


@pytest.mark.parametrize("position", ["0", "7", "run:3:1", "run:3:1:4"])
def test_a_position_is_text_that_can_be_read_back(position: str) -> None:
    assert str(Position.parse(position)) == position
