"""The Markdown transcript of a session."""

from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from bartack import (
    CompactionSummary,
    ErrorCode,
    Failed,
    FileRef,
    Image,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    assistant,
    system,
    tool_message,
    user,
)
from bartack.app.transcript import markdown_transcript
from bartack.nouns.entries import BranchSummary, SessionHeader, StreamFailed
from tests.sample_session import chain

# what opens a construct in Markdown, and what might close it
OPENING = ["```", "````", "~~~", "`", "- ", "1. ", "> ", "<!--", "<pre>", "<div>", "<script>", "[a]: ", "|", "\\"]
OTHER = ["\n", "\n\n", "word", "    ", "\t", "-->", "]]>", "</details>", "# ", "## You", "---"]
texts = st.lists(st.sampled_from(OPENING + OTHER), max_size=12).map("".join)


def headings(tokens: list[Token]) -> list[str]:
    return [tokens[place + 1].content for place, token in enumerate(tokens) if token.type == "heading_open"]


@given(text=texts, thought=texts, result=texts)
@example(text="```python\nx = 1", thought="~~~", result="````\n```")
@example(text="1. one\n   ```\n   code", thought="<!-- never closed", result="`")
def test_no_text_swallows_what_follows(text: str, thought: str, result: str) -> None:
    call = ToolCall("c", "look", {"text": text})
    written = markdown_transcript(
        chain(
            user(Text(text)),
            assistant(Thinking(thought), Text(text), call),
            tool_message(ToolResult("c", result)),
            user("LAST"),
        )
    )
    tokens = MarkdownIt().parse(written)
    names = headings(tokens)
    assert names.count("Assistant") == 1
    assert names[-1] == "You"
    assert tokens[-2].content == "LAST"
    fences = [token.content for token in tokens if token.type == "fence" and token.level == 0]
    assert f"{result.rstrip()}\n" in fences or not result.strip()


def test_it_contains_everything_worth_reading() -> None:
    written = markdown_transcript(
        chain(
            SessionHeader(title="About\nstones"),
            system("Be brief."),
            user("Look.", FileRef("a.txt"), Image("image/png", url="https://example.org/a.png")),
            user(Image("image/png", data=b"png", metadata={"name": "a\nb.png"})),
            assistant(Thinking("Hm."), "I *look*.", ToolCall("c", "read_file", {"path": "a.txt"})),
            tool_message(ToolResult("c", "no such file", is_error=True)),
            StreamFailed(error=Failed(error_code=ErrorCode.TIMEOUT, message="too\nslow")),
            CompactionSummary(summary="They looked.\nNothing was there.", first_kept_entry_id="e3"),
        )
    )
    for piece in (
        "# About stones\n",
        "## System\n\nBe brief.",
        "## You\n\nLook.",
        "*File a.txt*",
        "*Image (image/png)*",
        "*Image a b.png (image/png)*",
        "## Assistant\n\n<details><summary>Thinking</summary>\n\nHm.\n\n</details>\n\nI *look*.",
        'Tool call `read_file`:\n\n```json\n{\n  "path": "a.txt"\n}\n```',
        "Error:\n\n```\nno such file\n```",
        "*Model error: too slow*",
        "> They looked.\n> Nothing was there.",
    ):
        assert piece in written


def test_the_summary_of_another_branch_is_quoted() -> None:
    text = markdown_transcript(chain(user("hi"), BranchSummary(summary="It failed.\nTwice.", from_entry_id="e0")))
    assert "*The model gets this summary of another branch.*\n\n> It failed.\n> Twice." in text
