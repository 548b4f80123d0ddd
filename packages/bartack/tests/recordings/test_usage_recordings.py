"""The counts of every recorded usage fit together, whatever a provider reports."""

from pathlib import Path

import pytest

from bartack.formats import decoder
from bartack.nouns.deltas import Usage
from tests.recordings.agreement import FRAMINGS, decoded
from tests.recordings.oracle_openai import CHAT_APIS, RESPONSES_APIS
from tests.recordings.oracle_others import APIS
from tests.recordings.plain import case_dirs, load_case

FORMATS = dict.fromkeys(CHAT_APIS, "openai-chat") | dict.fromkeys(RESPONSES_APIS, "openai-responses")
FORMATS |= {api: api for api in APIS}
ALL_APIS = sorted(FORMATS)

# What providers have reported that does not fit: the reasoning of open models on OpenRouter, by another tokenizer, and
# cached tokens of a system prompt that Mistral adds for a reasoning model and does not count.
REPORTED = {
    "openrouter-chat": {"reasoningTokens": [11, 118, 216, 317]},
    "mistral-chat": {"cacheReadTokens": [64]},
}


def usages_of(case_dir: Path) -> list[Usage]:
    case = load_case(case_dir)
    framing = FRAMINGS[Path(case.file).suffix]
    reader = decoder(FORMATS[case_dir.parent.name], framing=framing)
    return [delta for delta in decoded(reader, case.body) if isinstance(delta, Usage)]


@pytest.mark.parametrize("api", ALL_APIS)
def test_the_counts_of_every_recorded_usage_fit_together(recordings: Path, api: str) -> None:
    """D-3.4.8."""
    reported: dict[str, list[int]] = {}
    for case_dir in case_dirs(api):
        for usage in usages_of(case_dir):
            assert (usage.cache_read_tokens or 0) + (usage.cache_write_tokens or 0) <= usage.input_tokens, case_dir
            assert (usage.reasoning_tokens or 0) <= usage.output_tokens, case_dir
            assert usage.total_tokens == usage.input_tokens + usage.output_tokens, case_dir
            for name, count in (usage.extra or {}).get("reported", {}).items():
                reported.setdefault(name, []).append(count)
    assert {name: sorted(counts) for name, counts in reported.items()} == REPORTED.get(api, {})
