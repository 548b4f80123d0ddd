"""Pictures and files, before any format: their type, their name in a text, data addresses."""

import pytest

from bartack.formats.losses import Losses
from bartack.formats.media import has_content, media_type, named, with_inline_data
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
def test_the_type_is_what_the_part_says_or_its_name_ends_in(part: Image | FileRef, kind: str) -> None:
    assert media_type(part) == kind


@pytest.mark.parametrize(
    ("part", "text", "why"),
    [
        (FileRef("a.txt"), "[file: a.txt]", "its content does not travel with the message"),
        (FileRef("a.txt", data=b""), "[file: a.txt]", "its content does not travel with the message"),
        (FileRef("a.txt", url="s3://a"), "[file: a.txt, s3://a]", "no"),
        (FileRef("s3://a", url="s3://a"), "[file: s3://a]", "no"),
        (Image("image/bmp", data=b"x"), "[image: image/bmp]", "no"),
        (Image("image/png", url="data:image/png;base64,?"), "[image: image/png]", "no"),
    ],
)
def test_what_cannot_be_sent_is_named(part: Image | FileRef, text: str, why: str) -> None:
    losses = Losses("p")
    assert named(part, "here", "no", losses) == text
    assert [(loss.where, loss.why) for loss in losses.found] == [("here", why)]
    assert has_content(part) == (why == "no")


def test_data_in_an_address_becomes_data() -> None:
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
def test_any_other_address_stays(url: str) -> None:
    message = user(Image("image/png", url=url))
    assert with_inline_data(message) is message
    plain = tool_message(ToolResult("c", (Text("a"),)), ToolResult("d", "x"))
    assert with_inline_data(plain) is plain
