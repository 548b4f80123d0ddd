"""A compressed body -> its data, in bounded steps.

`HttpClient` asks for uncompressed responses. If a server or a proxy compresses anyway, gzip and deflate are
supported. A small body can expand to gigabytes, so no step produces more than 64 KiB, and a body that expands
too far is refused before it is unpacked.
"""

import zlib
from collections.abc import Iterator

from bartack.nouns.errors import ErrorCode, ModelError

__all__ = ["Decompressor", "decompressor_for"]

_STEP_BYTES = 64 * 1024
# The most repetitive recorded stream is 89 times smaller when compressed (xai-chat/...object_streaming--0-c5ec8e).
# Deflate can reach 1,032 (zlib.net/zlib_tech.html).
_MAX_RATIO = 200
_FREE_BYTES = 1024 * 1024  # up to here, the ratio does not matter: a short, repetitive body is harmless


class Decompressor:
    """Unpacks one body of gzip or deflate."""

    def __init__(self, encoding: str, host: str) -> None:
        self._encoding = encoding
        self._host = host
        self._zlib: zlib._Decompress | None = None  # created with the first byte, which distinguishes the variants
        self._consumed = 0
        self._produced = 0

    @property
    def ended(self) -> bool:
        """Whether the compressed data is complete; what follows it means nothing."""
        return self._zlib is not None and self._zlib.eof

    def steps(self, data: bytes) -> Iterator[bytes]:
        """What these bytes complete, at most 64 KiB at a time. Raises `ModelError`."""
        if self._zlib is None:
            self._zlib = zlib.decompressobj(wbits=_window_bits(self._encoding, data))
        has_more = True  # a full step may have left output inside zlib
        while (data or has_more) and not self._zlib.eof:
            try:
                piece = self._zlib.decompress(data, _STEP_BYTES)
            except zlib.error as error:
                raise ModelError(
                    f"{self._host}: the response is not valid {self._encoding} ({error}).",
                    code=ErrorCode.CONNECTION_FAILED,
                ) from None
            self._consumed += len(data) - len(self._zlib.unconsumed_tail)
            data, has_more = self._zlib.unconsumed_tail, len(piece) == _STEP_BYTES
            self._produced += len(piece)
            if self._produced > max(_FREE_BYTES, self._consumed * _MAX_RATIO):
                raise ModelError(
                    f"{self._host}: the compressed response expands more than {_MAX_RATIO} times"
                    f" ({self._consumed} bytes to over {self._produced}), and was refused.",
                    code=ErrorCode.STREAM_TOO_LARGE,
                )
            if piece:
                yield piece


def decompressor_for(encoding: str, host: str) -> Decompressor | None:
    """The decompressor for the header Content-Encoding; None for an uncompressed body.

    Raises `ModelError` for any other encoding.
    """
    match encoding.strip().lower():
        case "" | "identity":
            return None
        case "gzip" | "x-gzip":
            return Decompressor("gzip", host)
        case "deflate":
            return Decompressor("deflate", host)
        case _:
            raise ModelError(
                f"{host}: the response has the unsupported encoding {encoding[:40]!r}, although none was requested."
                " Check for a proxy that compresses responses.",
                code=ErrorCode.STREAM_MALFORMED,
                retryable=False,
            )


def _window_bits(encoding: str, data: bytes) -> int:
    if encoding == "gzip":
        return 16 + zlib.MAX_WBITS
    # "deflate" means the zlib format (RFC 9110, 8.4.1.2); some servers send the bare data. The zlib format starts with
    # the method 8.
    return zlib.MAX_WBITS if data[0] & 0xF == 8 else -zlib.MAX_WBITS
