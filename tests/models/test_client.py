"""Keys are masked in everything that is logged or recorded."""

import pytest

from bartack.models.client import mask_secrets, safe_headers


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


def test_only_harmless_headers_are_kept() -> None:
    headers = {"X-Request-Id": "r", "Authorization": "k", "Cookie": "c", "x-goog-api-key": "k", "Retry-After": "1"}
    assert safe_headers(headers) == {"x-request-id": "r", "retry-after": "1"}
