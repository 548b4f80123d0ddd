"""Images, files and results as clients send and receive them."""

from typing import Any

import pytest

from bartack.nouns.errors import PartValidationError
from bartack.nouns.parts import FileRef, Image, Text, ToolResult
from bartack.protocols.content import content_text, is_blank, media_url, read_media, result_of


def read(url: str, media_type: str | None = None, name: str | None = None) -> Image | FileRef:
    return read_media(url, media_type=media_type, name=name, path="$.parts[0]")


def test_content_as_text() -> None:
    assert content_text("a") == "a"
    assert content_text({"a": 1}) == '{"a":1}'
    assert content_text((Text("a"), Image("image/png", data=b""), FileRef("b.txt"))) == "a\n[image]\n[file b.txt]"


def test_media_from_urls() -> None:
    assert read("data:image/png;base64,eA==") == Image("image/png", data=b"x")
    assert read("data:image/png;base64,eA==", name="a.png") == Image("image/png", data=b"x", metadata={"name": "a.png"})
    assert read("https://x/a", "image/png", "a.png") == Image.from_url(
        "https://x/a", mime_type="image/png", name="a.png"
    )
    assert read("data:text/plain;base64,eA==", name="a.txt") == FileRef(
        "a.txt", data=b"x", mime_type="text/plain", size=1
    )
    assert read("data:;base64,eA==") == FileRef("file", data=b"x", size=1)
    assert read("https://x/a.png", "image/png") == Image("image/png", url="https://x/a.png")
    assert read("https://x/a.pdf", name="b.pdf") == FileRef("b.pdf", url="https://x/a.pdf", mime_type="application/pdf")
    assert media_url(Image("image/png", url="https://x/a.png")) == "https://x/a.png"


@pytest.mark.parametrize("url", ["file:///etc/passwd", "/etc/passwd", "data:text/plain,x", "data:;base64,%", ""])
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(PartValidationError) as error:
        read(url)
    assert error.value.path == "$.parts[0]"


@pytest.mark.parametrize(
    ("output", "content", "value"),
    [("a", "a", "a"), ({"a": 1}, {"a": 1}, {"a": 1}), (None, "", ""), ([1], "[1]", [1]), (True, "true", True)],
)
def test_outputs_of_tools_that_a_client_executed(output: Any, content: Any, value: Any) -> None:
    made = result_of("c1", output)
    assert isinstance(made, ToolResult)
    assert (made.content, made.value) == (content, value)


def test_a_message_without_words_or_files_is_blank() -> None:
    assert is_blank([])
    assert is_blank([Text(""), Text(" \n")])
    assert not is_blank([Text(" "), Text("Hi")])
    assert not is_blank([Image("image/png", data=b"png")])
