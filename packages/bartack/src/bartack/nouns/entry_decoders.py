"""The decoders of what is stored and read by the thousand, made when they are first needed, in one thread.

While msgspec makes a decoder, it registers what it knows of each class with that class. A second thread that makes one
for the same classes at the same time takes what is only half registered, and the interpreter crashes. An import runs in
one thread while the others wait, so `NativeCodec` imports this module on first use. Made with `bartack.nouns.wire`
itself, the decoders would slow down each import of bartack by a fifth.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from bartack.nouns.entries import Entry, MessageDeltaBatch
from bartack.nouns.native import wire_type_of

__all__ = ["DECODERS"]

DECODERS: dict[Any, Callable[[bytes | str], Any]] = {
    noun: msgspec.json.Decoder(wire_type_of(noun)).decode for noun in (Entry, MessageDeltaBatch)
}
