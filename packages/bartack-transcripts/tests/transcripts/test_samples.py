"""Every sample transcript: imported, viewed, checked, exported byte for byte, and sent to every provider."""

import pytest

from bartack.formats import FORMATS as WIRE_FORMATS
from bartack.formats import encode
from bartack.nouns import wire
from bartack.nouns.config import ModelConfig
from bartack.nouns.entries import Entry, branch, heads
from bartack.nouns.requests import ModelRequest
from bartack.session.context.fold import ContextFold
from bartack.store import MemoryStore
from bartack.store.maintenance import check
from bartack.views import document, feed, ledger
from bartack_transcripts.disk.files import FoundTranscript, files_of, read_transcripts
from bartack_transcripts.disk.importing import import_transcript
from bartack_transcripts.formats import Transcript, entries_of, source_files
from tests.formats.validity.checks import faults
from tests.transcripts.samples import NO_SAMPLES, samples, unexpected

SAMPLES = samples()
pytestmark = pytest.mark.skipif(not SAMPLES, reason=NO_SAMPLES)
each_sample = pytest.mark.parametrize(
    "sample", SAMPLES, ids=[f"{sample.format.name}-{sample.path.parts[-2]}-{sample.name}"[-80:] for sample in SAMPLES]
)
_MODELS = {
    "anthropic-messages": "claude-sonnet-4-5",
    "bedrock-invoke": "anthropic.claude-sonnet-4-5-20250929-v1:0",
    "openai-responses": "gpt-5",
    "gemini-generate": "gemini-2.5-pro",
}


@each_sample
def test_an_untouched_session_is_exported_byte_for_byte(sample: FoundTranscript) -> None:
    files_kept: dict[str, bytes] = {}
    for transcript in read_transcripts(sample):
        files_kept |= source_files(entries_of(transcript, sample.modified))
    files = files_of(sample, unexpected)
    if sample.format.base_of(files.get(sample.name, b"")) is not None:
        files = {sample.name: files[sample.name]}  # without the file that it continues
    assert files_kept == files


@each_sample
async def test_a_session_can_be_imported_viewed_and_checked(sample: FoundTranscript) -> None:
    store = MemoryStore()
    for transcript in read_transcripts(sample):
        imported = await import_transcript(store, transcript, sample.modified)
        assert imported.is_new
        again = await import_transcript(store, transcript, sample.modified)
        assert again.entries == 0
        entries = await store.entries(transcript.session_id)
        assert await check(store, transcript.session_id) == []
        for view in (ledger, feed, document):
            view.dump(entries)


@each_sample
def test_every_fact_is_read_back_as_it_was_written(sample: FoundTranscript) -> None:
    for transcript in read_transcripts(sample):
        for entry in entries_of(transcript, sample.modified):
            assert wire.decode(Entry, wire.encode(entry)) == entry


@each_sample
def test_every_branch_becomes_a_request_that_each_provider_accepts(sample: FoundTranscript) -> None:
    for transcript in read_transcripts(sample):
        entries = entries_of(transcript, sample.modified)
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
