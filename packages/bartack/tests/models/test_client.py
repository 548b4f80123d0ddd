"""Keys are masked in everything that is logged or recorded."""

import pytest

from bartack.models.client import MASK, ChunkMasker, mask_secrets, safe_headers


@pytest.mark.parametrize(
    "secret",
    [
        "sk-proj-0123456789abcdef",
        "sk-ant-api03-abc_DEF-123456",
        "sk-or-v1-0123456789abcdef",
        "sk-abcd****************wxyz",
        "gsk_0123456789abcdef",
        "xai-0123456789abcdef",
        "csk-0123456789abcdef",
        "pplx-0123456789abcdef",
        "fw_0123456789abcdef",
        "tgp_v1_0123456789abcdef",
        "hf_0123456789abcdef",
        "AIzaSyA0123456789abcdefghijklmnopqrstuv",
        "ya29.a0AfH6SMB-abcdef",
        "AKIAIOSFODNN7EXAMPLE",
        "ABSKQmVkcm9ja0FQSUtleS0xMjM0",
        "ghp_0123456789abcdefghij",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl",
        "Bearer abcdefgh12345678",
    ],
)
def test_keys_with_known_prefixes_are_masked(secret: str) -> None:
    assert mask_secrets(f"before {secret} after") == "before [hidden] after"
    assert secret not in mask_secrets(f'{{"key":"{secret}"}}')


def test_the_key_in_use_is_masked_whatever_it_looks_like() -> None:
    assert mask_secrets("Incorrect key: hunter2!", ["hunter2!"]) == "Incorrect key: [hidden]"
    assert mask_secrets("a b c", ["a"]) == "a b c", "one letter is not a secret"


def test_passwords_and_keys_in_urls_are_masked() -> None:
    assert mask_secrets("http://user:pass@proxy.example:8080/") == "http://[hidden]@proxy.example:8080/"
    assert mask_secrets("https://host/v1?alt=sse&key=abcdef12&x=1") == "https://host/v1?alt=sse&key=[hidden]&x=1"


@pytest.mark.parametrize(
    "text", ["ask-the-model about task-forces", "the risk-averse desk-lamp", "maximum 8192 tokens"]
)
def test_ordinary_words_are_not_masked(text: str) -> None:
    assert mask_secrets(text) == text


@pytest.mark.parametrize("piece", ["-eyJ", "eyJaaaaaaaa.", "bearer ", "://a:", "sk-", "?key="])
def test_a_million_characters_are_masked_in_linear_time(piece: str) -> None:
    """In quadratic time this would take hours, on the event loop."""
    text = piece * (1_000_000 // len(piece))
    assert len(mask_secrets(text)) <= len(text)


def test_only_harmless_headers_are_kept() -> None:
    headers = {"X-Request-Id": "r", "Authorization": "k", "Cookie": "c", "x-goog-api-key": "k", "Retry-After": "1"}
    assert safe_headers(headers) == {"x-request-id": "r", "retry-after": "1"}


# -- in chunks

WORDS = b'data: {"a": "Gr\xc3\xbc\xc3\x9fe"}\n\n'
SPLIT = [
    b"sk-proj-0123456789abcdef",
    b"gsk_0123456789abcdef",
    b"Bearer abcdefgh12345678",
    b"my own key",
    "schlüssel".encode(),
]


@pytest.mark.parametrize("secret", SPLIT)
@pytest.mark.parametrize("around", [(WORDS, b"\n\n"), (b"\xff\xe9 ", b" \x80"), (b'{"k":"', b'"}'), (b"", b"")])
def test_a_secret_is_masked_wherever_the_body_is_split(secret: bytes, around: tuple[bytes, bytes]) -> None:
    body = around[0] + secret + around[1]
    expected = around[0] + MASK.encode() + around[1]
    for cut in range(len(body) + 1):
        for second_cut in range(cut, len(body) + 1):
            chunks = [body[:cut], body[cut:second_cut], body[second_cut:]]
            masker = ChunkMasker(["my own key", "schlüssel"])
            masked = [done for chunk in chunks for done in masker.feed(chunk)] + masker.end()
            assert len(masked) == len(chunks)
            assert b"".join(masked) == expected
            if chunks[0].endswith(b"\n\n"):
                assert masked[0] == chunks[0].replace(secret, MASK.encode())


def test_every_byte_of_a_secret_may_be_a_chunk() -> None:
    body = b"a sk-proj-0123456789abcdef b sk-proj-0123456789abcdef\n"
    masker = ChunkMasker()
    masked = [done for byte in body for done in masker.feed(bytes([byte]))] + masker.end()
    assert len(masked) == len(body)
    assert b"".join(masked) == b"a [hidden] b [hidden]\n"


def test_secrets_that_overlap_are_masked_as_one() -> None:
    masker = ChunkMasker(["my own key", "key ring"])
    assert masker.feed(b"my own key ri") == []
    assert masker.feed(b"ng my own key\n") == [b"[hidden]", b" [hidden]\n"]


def test_only_chunks_that_may_end_in_a_secret_are_held_back() -> None:
    masker = ChunkMasker(["my own key"])
    assert masker.feed(WORDS) == [WORDS]
    assert masker.feed(b"word ") == [b"word "]
    assert masker.feed(b"my ") == []
    assert masker.feed(b"own way ") == [b"my ", b"own way "]
    assert masker.feed(b"bearer \t") == []
    assert masker.feed(b"of news ") == [b"bearer \t", b"of news "]


@pytest.mark.parametrize("word", [b"a", b"sk-a"])
def test_a_word_without_end_is_held_back_up_to_a_limit(word: bytes) -> None:
    masker = ChunkMasker()
    masker.feed(word)
    pending = 1
    for _ in range(200):
        pending += 1 - len(masker.feed(b"a" * 1000))
        assert pending <= 70
