"""Every sample transcript: imported, viewed, checked, exported byte for byte, and sent to every provider."""

import pytest

from bartack.app.transcript_import import import_transcript
from bartack.app.transcripts import Found, files_of, read_transcripts
from bartack.formats import FORMATS as WIRE_FORMATS
from bartack.formats import encode
from bartack.interop import Transcript, entries_of, source_files
from bartack.nouns import wire
from bartack.nouns.config import ModelConfig
from bartack.nouns.entries import Entry, branch, heads
from bartack.nouns.requests import ModelRequest
from bartack.session.context.fold import ContextFold
from bartack.store import MemoryStore
from bartack.store.maintenance import check
from bartack.views import document, feed, ledger
from tests.formats.validity.checks import faults
from tests.interop.samples import NO_SAMPLES, samples, unexpected

SAMPLES = samples()
pytestmark = pytest.mark.skipif(not SAMPLES, reason=NO_SAMPLES)
each_sample = pytest.mark.parametrize(
    "found", SAMPLES, ids=[f"{found.format.name}-{found.path.parts[-2]}-{found.name}"[-80:] for found in SAMPLES]
)
_MODELS = {
    "anthropic-messages": "claude-sonnet-4-5",
    "bedrock-invoke": "anthropic.claude-sonnet-4-5-20250929-v1:0",
    "openai-responses": "gpt-5",
    "gemini-generate": "gemini-2.5-pro",
}


@each_sample
def test_an_untouched_session_is_exported_byte_for_byte(found: Found) -> None:
    kept: dict[str, bytes] = {}
    for transcript in read_transcripts(found):
        kept |= source_files(entries_of(transcript, found.modified))
    files = files_of(found, unexpected)
    if found.format.base_of(files.get(found.name, b"")) is not None:
        files = {found.name: files[found.name]}  # without the file that it continues
    assert kept == files


@each_sample
async def test_a_session_can_be_imported_viewed_and_checked(found: Found) -> None:
    store = MemoryStore()
    for transcript in read_transcripts(found):
        imported = await import_transcript(store, transcript, found.modified)
        assert imported.is_new
        again = await import_transcript(store, transcript, found.modified)
        assert again.entries == 0
        entries = await store.entries(transcript.session_id)
        assert await check(store, transcript.session_id) == []
        for view in (ledger, feed, document):
            view.dump(entries)


@each_sample
def test_every_fact_is_read_back_as_it_was_written(found: Found) -> None:
    for transcript in read_transcripts(found):
        for entry in entries_of(transcript, found.modified):
            assert wire.decode(Entry, wire.encode(entry)) == entry


@each_sample
def test_every_branch_becomes_a_request_that_each_provider_accepts(found: Found) -> None:
    for transcript in read_transcripts(found):
        entries = entries_of(transcript, found.modified)
        for head in heads(entries):
            _check_requests(transcript, branch(entries, head))


def _check_requests(transcript: Transcript, entries: tuple[Entry, ...]) -> None:
    fold = ContextFold.of(entries)
    messages = [*([fold.summary] if fold.summary else []), *(item.message for item in fold.items)]
    if not messages:
        return
    for format in WIRE_FORMATS:
        model = _MODELS.get(format, "some-model")
        body = encode(format, ModelRequest(messages=tuple(messages), config=ModelConfig(model))).body
        assert faults(format, body, model=model) == [], (transcript.session_id, format)
