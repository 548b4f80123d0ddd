"""Transcripts of Claude Code (1.0 to 2.1) and of Kode, which writes the same records.

A session is a file of JSON lines. Records of the conversation have a `uuid` and name the one that they follow; others
are notes of the program. What makes the format hard to read:

- An answer is written as one line per content block. All of them repeat the id of the message and its usage.
- Each tool result follows the line of its own call, so the lines of parallel calls form a small tree. Walking from the
  last line to the first would lose all calls but one.
- A compaction begins a new tree. The messages that it keeps are named by their uuids, not copied.
- Going back to an earlier prompt adds a line that follows an older one: a branch.
- Before version 2.0, the lines of sub-agents are in the same file; later they have a file each.
"""

from bartack_transcripts.claude_code.read import looks_like_claude_code, looks_like_kode, read_claude_code, read_kode
from bartack_transcripts.claude_code.write import CLAUDE_CODE_WRITER, KODE_WRITER

__all__ = [
    "CLAUDE_CODE_WRITER",
    "KODE_WRITER",
    "looks_like_claude_code",
    "looks_like_kode",
    "read_claude_code",
    "read_kode",
]
