"""Transcripts of Gemini CLI."""

from bartack_transcripts.gemini.read import looks_like_gemini, outer_of, read_gemini
from bartack_transcripts.gemini.write import GEMINI_WRITER

__all__ = ["GEMINI_WRITER", "looks_like_gemini", "outer_of", "read_gemini"]
