"""Transcripts of pi, read (`read`) and written (`write`)."""

from bartack.interop.pi.read import looks_like_pi, read_pi
from bartack.interop.pi.write import PI_WRITER

__all__ = ["PI_WRITER", "looks_like_pi", "read_pi"]
