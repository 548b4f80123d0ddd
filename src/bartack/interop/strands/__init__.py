"""Sessions of strands-agents, read (`read`) and written (`write`)."""

from bartack.interop.strands.read import looks_like_strands, read_strands
from bartack.interop.strands.write import STRANDS_WRITER

__all__ = ["STRANDS_WRITER", "looks_like_strands", "read_strands"]
