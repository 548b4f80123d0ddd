"""What the encoders share about images and files: media types, placeholders, data URLs."""

import pytest

from bartack.formats.losses import Losses
from bartack.formats.media import data_url, exact_data, has_content, media_type, placeholder, with_inline_data
from bartack.nouns.messages import tool_message, user
from bartack.nouns.parts import FileRef, Image, Text, ToolResult


@pytest.mark.parametrize(
    ("part", "kind"),
    [
        (Image("image/png", data=b"x"), "image/png"),
        (Image("image/*", url="https://x/y.JPG?size=2"), "image/jpeg"),
        (Image("image/*", url="https://x/y"), "image/*"),
        (FileRef("a/b.pdf", data=b"x"), "application/pdf"),
        (FileRef("a.pdf", mime_type="text/plain", data=b"x"), "text/plain"),
        (FileRef("a"), ""),
    ],
)
def test_the_media_type_is_that_of_the_part_or_its_name(part: Image | FileRef, kind: str) -> None:
    assert media_type(part) == kind


@pytest.mark.parametrize(
    ("part", "text", "why"),
    [
        (FileRef("a.txt"), "[file: a.txt]", "the message does not contain its data"),
        (FileRef("a.txt", data=b""), "[file: a.txt]", "the message does not contain its data"),
        (FileRef("a.txt", url="s3://a"), "[file: a.txt, s3://a]", "no"),
        (FileRef("s3://a", url="s3://a"), "[file: s3://a]", "no"),
        (Image("image/bmp", data=b"x"), "[image: image/bmp]", "no"),
        (Image("image/png", url="data:image/png;base64,?"), "[image: image/png]", "no"),
    ],
)
def test_content_that_is_not_sent_gets_a_placeholder(part: Image | FileRef, text: str, why: str) -> None:
    losses = Losses("p")
    assert placeholder(part, "here", "no", losses) == text
    assert [(loss.where, loss.why) for loss in losses.found] == [("here", why)]
    assert has_content(part) == (why == "no")


def test_data_urls_become_inline_data() -> None:
    picture = Image("image/png", url="data:image/gif;name=x;base64,eA==")
    sound = FileRef("a", mime_type="audio/wav", url="data:;base64,eA==")
    assert with_inline_data(user("a", picture, sound)).parts == (
        Text("a"),
        Image("image/gif", data=b"x"),
        FileRef("a", mime_type="audio/wav", data=b"x"),
    )
    in_result = with_inline_data(tool_message(ToolResult("c", (Text("a"), picture))))
    assert in_result.tool_results[0].content == (Text("a"), Image("image/gif", data=b"x"))


@pytest.mark.parametrize(
    "url", ["https://x/y", "data:image/png;base64,?", "data:image/png;base64,é", "data:image/png,x", "data:x"]
)
def test_other_urls_stay(url: str) -> None:
    message = user(Image("image/png", url=url))
    assert with_inline_data(message) is message
    plain = tool_message(ToolResult("c", (Text("a"),)), ToolResult("d", "x"))
    assert with_inline_data(plain) is plain


def test_a_data_url_is_exact_if_writing_its_data_gives_the_same_url() -> None:
    assert exact_data(data_url("image/png", b"x")) == ("image/png", b"x")
    for url in ("data:image/png;base64,", "data:;base64,eA==", "data:image/png;base64,eB==", "https://x/y"):
        assert exact_data(url) is None
