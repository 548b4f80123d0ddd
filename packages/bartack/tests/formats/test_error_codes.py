"""`classify`: the error code for a provider's error word, message and status."""

import pytest

from bartack.formats.error_codes import classify, most_specific
from bartack.nouns.errors import ErrorCode


@pytest.mark.parametrize(
    ("status", "word", "message", "code"),
    [
        # a message about length wins over vague words, whatever the status
        (400, "invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum", "context_overflow"),
        (500, None, "This model's maximum context length is 8192 tokens", "context_overflow"),
        (429, "rate_limit_error", "over the maximum context tokens per minute", "rate_limited"),
        # a specific word wins over the status
        (400, "overloaded_error", "busy", "overloaded"),
        (200, "ThrottlingException", "slow down", "rate_limited"),
        (None, "throttlingException:", "slow down", "rate_limited"),
        # after a vague word, the message decides, then the status
        (400, "invalid_request_error", "Your credit balance is too low", "quota_exceeded"),
        (400, "ValidationException", "The provided model identifier is invalid.", "model_not_found"),
        (400, "invalid_request_error", "Incorrect API key provided", "authentication"),
        (403, "invalid_request_error", "not allowed", "permission_denied"),
        (429, "api_error", "later", "rate_limited"),
        (400, "server_error", "odd", "server_error"),
        (422, "invalid_request_error", "odd", "invalid_request"),
        (500, "invalid_request_error", "odd", "invalid_request"),
        (500, None, "the model was not found", "server_error"),
        (None, "invalid_request_error", "odd", "invalid_request"),
        # a number instead of a word is a status
        (None, "429", "later", "rate_limited"),
        (None, "1302", "later", "provider_error"),
        # the status alone
        (409, None, "", "server_error"),
        (555, None, "", "server_error"),
        (451, "unheard_of", "", "provider_error"),
        (None, None, "", "provider_error"),
    ],
)
def test_errors_are_classified_by_word_message_and_status(
    status: int | None, word: str | None, message: str, code: str
) -> None:
    assert classify(status, word, message) == ErrorCode(code)


@pytest.mark.parametrize(
    ("words", "word"),
    [
        ((), None),
        (("unheard", "of"), "unheard"),
        (("unheard", "invalid_request_error"), "invalid_request_error"),
        (("invalid_request_error", "Invalid_API_Key"), "Invalid_API_Key"),
        (("insufficient_quota", "requests"), "insufficient_quota"),
    ],
)
def test_of_several_error_words_the_most_specific_is_used(words: tuple[str, ...], word: str | None) -> None:
    assert most_specific(words) == word
