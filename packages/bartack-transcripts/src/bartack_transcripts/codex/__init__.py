"""Transcripts of Codex, read (`read`) and written (`write`)."""

from bartack_transcripts.codex.read import base_of, looks_like_codex, read_codex
from bartack_transcripts.codex.write import CODEX_WRITER

__all__ = ["CODEX_WRITER", "base_of", "looks_like_codex", "read_codex"]
