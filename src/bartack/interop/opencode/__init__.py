"""Sessions of opencode, read (`read`) and written (`write`)."""

from bartack.interop.opencode.read import QUERIES, looks_like_opencode, read_opencode
from bartack.interop.opencode.write import OPENCODE_WRITER

__all__ = ["OPENCODE_WRITER", "QUERIES", "looks_like_opencode", "read_opencode"]
