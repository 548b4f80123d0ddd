"""Transcripts of Qwen Code."""

from bartack.interop.qwen.read import looks_like_qwen, read_qwen
from bartack.interop.qwen.write import QWEN_WRITER

__all__ = ["QWEN_WRITER", "looks_like_qwen", "read_qwen"]
