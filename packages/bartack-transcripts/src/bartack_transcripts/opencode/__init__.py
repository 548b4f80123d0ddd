"""Sessions of opencode, read (`read`) and written (`write`)."""

from bartack_transcripts.opencode.read import TABLES, looks_like_opencode, read_opencode
from bartack_transcripts.opencode.write import OPENCODE_WRITER

__all__ = ["OPENCODE_WRITER", "TABLES", "looks_like_opencode", "read_opencode"]
