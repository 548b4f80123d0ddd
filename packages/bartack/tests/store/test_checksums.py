"""Chained checksums: what breaks a chain, and checksums in lines of text."""

from hypothesis import given
from hypothesis import strategies as st

from bartack.store.checksums import chain, checksums_of, digest_of, seal, split_checksum, unseal, with_checksum

TEXTS = [b'{"id":"a"}', b'{"id":"b"}', b'{"id":"c"}']


def test_a_checksum_covers_the_text_and_everything_before_it() -> None:
    checksums = checksums_of(TEXTS)
    assert len(set(checksums)) == 3
    assert checksums_of([b'{"id":"A"}', *TEXTS[1:]])[2] != checksums[2]
    assert checksums_of(TEXTS[1:])[1] != checksums[2]
    assert checksums_of([TEXTS[1], TEXTS[0], TEXTS[2]])[2] != checksums[2]


def test_a_chain_continues_from_the_last_checksum() -> None:
    assert checksums_of(TEXTS)[2] == chain(checksums_of(TEXTS[:2])[1], digest_of(TEXTS[2]))
    assert checksums_of(TEXTS[2:], checksums_of(TEXTS[:2])[-1]) == checksums_of(TEXTS)[2:]


@given(st.binary(), st.binary(min_size=16, max_size=16))
def test_a_line_gives_back_its_text_and_checksum(inner: bytes, checksum: bytes) -> None:
    text = b'{"a":' + inner + b"}"
    assert split_checksum(with_checksum(text, checksum)) == (text, checksum)


def test_a_line_without_a_checksum_is_left_as_it_is() -> None:
    assert split_checksum(b'{"id":"a","checksum":"12"}') == (b'{"id":"a","checksum":"12"}', None)
    assert split_checksum(b"") == (b"", None)


def test_every_flipped_bit_breaks_a_seal() -> None:
    sealed = seal(b'{"a":1}')
    assert unseal(sealed) == b'{"a":1}'
    for position in range(len(sealed) * 8):
        flipped = bytearray(sealed)
        flipped[position // 8] ^= 1 << position % 8
        assert unseal(bytes(flipped)) is None
