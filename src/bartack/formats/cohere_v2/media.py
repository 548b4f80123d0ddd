"""Images in Cohere's messages: an address, or the bytes as a data address, in a block of type ``image_url``."""

import re
from base64 import b64encode
from typing import Any

from bartack.formats.body_values import bytes_at, object_at, text_at
from bartack.formats.media import media_type
from bartack.nouns.parts import FileRef, Image

__all__ = ["image_block", "read_image"]

_TAKEN = frozenset(("image/png", "image/jpeg", "image/gif", "image/webp"))  # docs.cohere.com/docs/image-inputs
_DATA = re.compile(r"data:([\w/+.-]+);base64,", re.ASCII)


def image_block(part: Image | FileRef) -> dict[str, Any] | None:
    """The block of a picture; None for any other file, and for a picture that Cohere cannot read or reach."""
    kind = media_type(part)
    if part.data:
        url = f"data:{kind};base64,{b64encode(part.data).decode()}" if kind in _TAKEN else None
    else:
        url = part.url if kind.startswith("image/") and (part.url or "").startswith(("https://", "http://")) else None
    return None if url is None else {"type": "image_url", "image_url": {"url": url}}


def read_image(block: dict[str, Any], path: str) -> tuple[Image, bool]:
    """The picture, and whether it says all that the block says (which may ask for a level of detail)."""
    url = text_at(object_at(block.get("image_url"), path).get("url"), f"{path}.url")
    inline = _DATA.match(url)
    if inline is None:
        image = Image("image/*", url=url)
    else:
        image = Image(inline[1], data=bytes_at(url[inline.end() :], f"{path}.url"))
    return image, image_block(image) == block
