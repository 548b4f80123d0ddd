"""Deltas that arrive together: the pieces of one text become one, so that each is encoded and sent once."""

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from bartack.nouns.deltas import Delta, MessageDelta, TextDelta, ThinkingDelta, ToolCallArgs

__all__ = ["joined"]


def joined(deltas: Iterable[MessageDelta]) -> Iterator[MessageDelta]:
    """The deltas, with pieces that extend the same text or the same arguments as one.

    It has the seq of the last piece, and the time of the first.
    """
    pieces: list[MessageDelta] = []
    for delta in deltas:
        if pieces and not _extends(delta.delta, pieces[-1].delta):
            yield _as_one(pieces)
            pieces = []
        pieces.append(delta)
    if pieces:
        yield _as_one(pieces)


def _extends(delta: Delta, last: Delta) -> bool:
    """Whether a delta adds text to what the last one belongs to, and nothing else."""
    match delta:
        case TextDelta() | ThinkingDelta():
            return type(delta) is type(last) and not delta.new_part and delta.continuation is None
        case ToolCallArgs():
            return type(last) is ToolCallArgs and last.tool_call_id == delta.tool_call_id
        case _:
            return False


def _as_one(pieces: list[MessageDelta]) -> MessageDelta:
    first, delta = pieces[0], pieces[0].delta
    if len(pieces) == 1:
        return first
    name = "args_text_delta" if isinstance(delta, ToolCallArgs) else "text_delta"
    text = "".join([getattr(piece.delta, name) for piece in pieces])
    return replace(first, seq=pieces[-1].seq, delta=replace(delta, **{name: text}))
