"""The environment: the source of time and new ids."""

from datetime import UTC, datetime, timedelta
from itertools import count
from uuid import UUID

from bartack.environment import Environment


def test_a_given_clock_and_given_bits_give_the_same_ids() -> None:
    """D-1.4"""
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)

    def environment() -> Environment:
        seconds, bits = count(), count()
        return Environment(now=lambda: noon + timedelta(seconds=next(seconds)), random=lambda: next(bits))

    first, second = environment(), environment()
    ids = [first.new_id() for _ in range(3)]
    assert ids == [second.new_id() for _ in range(3)]
    assert ids == sorted(set(ids))
    assert first.now() == noon + timedelta(seconds=3)


def test_the_default_environment_has_utc_time_and_unique_ids() -> None:
    environment = Environment()
    before = datetime.now(UTC)
    now = environment.now()
    assert before <= now <= datetime.now(UTC)
    assert now.tzinfo is UTC
    ids = {environment.new_id() for _ in range(100)}
    assert len(ids) == 100
    assert {UUID(made).version for made in ids} == {7}
