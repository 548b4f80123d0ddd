"""Images and files from bytes, files and URLs."""

from pathlib import Path
from typing import Any

import pytest

from bartack import FileRef, Image, PartValidationError

PNG = b"\x89PNG\r\n\x1a\n" + b"..."
WEBP = b"RIFF\0\0\0\0WEBP" + b"..."


def test_the_type_of_an_image_is_read_from_its_bytes(tmp_path: Path) -> None:
    assert Image.from_bytes(PNG) == Image("image/png", data=PNG)
    assert Image.from_bytes(WEBP).mime_type == "image/webp"
    assert Image.from_bytes(b"...", mime_type="image/heic").mime_type == "image/heic"
    (tmp_path / "photo.jpg").write_bytes(PNG)  # the bytes count, not the name
    photo = Image.from_file(tmp_path / "photo.jpg")
    assert (photo.mime_type, photo.data, photo.name) == ("image/png", PNG, "photo.jpg")


def test_an_image_may_be_a_url() -> None:
    assert Image.from_url("https://a/b.png?c=d.gif") == Image("image/png", url="https://a/b.png?c=d.gif")
    assert Image.from_url("https://a/b").mime_type == "image/*"


def test_the_name_of_an_image_is_in_its_metadata() -> None:
    assert Image.from_bytes(PNG, name="dot.png").metadata == {"name": "dot.png"}
    assert Image.from_url("https://a/b.png", name="dot.png").name == "dot.png"
    assert Image("image/png", data=PNG, metadata={"name": 1}).name is None


@pytest.mark.parametrize("data", [b"", b"hello", b"%PDF-1.7"])
def test_what_is_no_image_is_refused(data: bytes, tmp_path: Path) -> None:
    with pytest.raises(PartValidationError, match="not a PNG"):
        Image.from_bytes(data)
    (tmp_path / "a.png").write_bytes(data)
    with pytest.raises(PartValidationError, match="not a PNG"):
        Image.from_file(tmp_path / "a.png")


def test_a_file_has_a_name_a_type_and_a_size(tmp_path: Path) -> None:
    assert FileRef.from_bytes(b"%PDF-1.7", "report") == FileRef(
        "report", data=b"%PDF-1.7", mime_type="application/pdf", size=8
    )
    (tmp_path / "talk.mp3").write_bytes(b"...")
    assert FileRef.from_file(tmp_path / "talk.mp3") == FileRef("talk.mp3", data=b"...", mime_type="audio/mpeg", size=3)
    assert FileRef.from_file(str(tmp_path / "talk.mp3"), mime_type="audio/wav").mime_type == "audio/wav"
    assert FileRef.from_url("https://a/b.pdf?c") == FileRef(
        "b.pdf", url="https://a/b.pdf?c", mime_type="application/pdf"
    )
    assert FileRef.from_url("https://a/", name="page").path == "page"


@pytest.mark.parametrize("kind", [Image, FileRef])
def test_a_file_that_cannot_be_read_is_named(kind: type[Image] | type[FileRef], tmp_path: Path) -> None:
    with pytest.raises(PartValidationError, match=r"nothing\.png.*No such file"):
        kind.from_file(tmp_path / "nothing.png")


@pytest.mark.parametrize("mime_type", [None, "image/png"])
def test_content_must_be_bytes(mime_type: str | None) -> None:
    with pytest.raises(PartValidationError, match=r"expected bytes, got str - at `\$\.data`"):
        Image.from_bytes("abc", mime_type=mime_type)  # type: ignore[arg-type]
    with pytest.raises(PartValidationError, match="expected bytes"):
        FileRef.from_bytes("abc", "a.txt", mime_type=mime_type)  # type: ignore[arg-type]
    assert Image.from_bytes(bytearray(PNG)) == Image.from_bytes(PNG)


@pytest.mark.parametrize("url", ["nonsense", "", 3, "https:", "/a/b.png"])
def test_a_url_has_a_scheme(url: Any) -> None:
    for make in (Image.from_url, FileRef.from_url):
        with pytest.raises(PartValidationError, match=r"expected a URL .* - at `\$\.url`"):
            make(url, mime_type="image/png")
    assert Image.from_url("data:image/png;base64,AAAA").url is not None
