"""What `lab/interop.py` proved, small enough for every run of the tests.

A session with fixed bytes is exported to each program, and the real program continues the export. `requests.json` has a
digest of each export, and the conversation that the program then sent, without what it adds itself. As long as the
exports are the same, so is the proof; `python -m lab.interop PROGRAMS --record` makes it again.
"""

import json
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from bartack_transcripts.formats import FORMATS, Exported, entries_of, exported

Json = dict[str, Any]

RECORDED: Final = Path(__file__).parent / "programs" / "requests.json"
DIRECTORY: Final = "/tmp/bartack-evidence"
PROMPT: Final = "And what was in the second one?"
_ID = "5b0c9cde-1111-4111-8111-111111111111"
_NEW_ID = "6c1dadef-2222-4222-8222-222222222222"
_CALLS = {"toolu_01": ("Bash", "echo apples"), "toolu_02": ("Bash", "cat pears.txt")}
_RESULTS = {"toolu_01": "apples", "toolu_02": "pears.txt: no such file"}
# In the order in which a program has to send them.
WORDS: Final = (
    "Please count the fruit.",
    "I will count it.",
    "echo apples",
    "cat pears.txt",
    "apples",
    "pears.txt: no such file",
    "There are only apples.",
    PROMPT,
)


def transcript() -> bytes:
    """A session of Claude Code."""
    text, last = ({"type": "text", "text": WORDS[place]} for place in (1, 6))
    calls: list[Json] = [
        {"type": "tool_use", "id": id, "name": name, "input": {"command": command}}
        for id, (name, command) in _CALLS.items()
    ]
    results = [
        {"type": "tool_result", "tool_use_id": id, "content": output, "is_error": "no such" in output}
        for id, output in _RESULTS.items()
    ]
    messages: list[tuple[str, Json]] = [
        ("user", {"role": "user", "content": WORDS[0]}),
        *(("assistant", _answer("msg_1", block)) for block in [text, *calls]),
        *(("user", {"role": "user", "content": [result]}) for result in results),
        ("assistant", _answer("msg_2", last)),
    ]
    lines: list[bytes] = []
    for number, (kind, message) in enumerate(messages):
        line: Json = {"type": kind, "uuid": _uuid(number), "parentUuid": _uuid(number - 1) if number else None}
        line |= {"timestamp": f"2026-01-01T00:00:{number:02}.000Z", "sessionId": _ID, "cwd": DIRECTORY}
        lines.append(json.dumps({**line, "message": message}).encode() + b"\n")
    return b"".join(lines)


def _answer(id: str, block: Json) -> Json:
    usage = {"input_tokens": 10, "output_tokens": 5}
    return {"id": id, "role": "assistant", "model": "claude-mock", "content": [block], "usage": usage}


def _uuid(number: int) -> str:
    return f"00000000-0000-4000-8000-{number:012}"


def export(target: str) -> Exported:
    """The session in the format of a program."""
    writer = FORMATS[target].writer
    assert writer is not None
    (session,) = FORMATS["claude-code"].read({f"{_ID}.jsonl": transcript()})
    entries = entries_of(session)
    return exported(entries, target, writer, new_id=_NEW_ID, may_keep_id=target != "claude-code")


def digest(export: Exported) -> str:
    """What identifies the files of an export."""
    hasher = sha256()
    for name, data in sorted(export.files.items()):
        hasher.update(f"{name}\n{len(data)}\n".encode() + data)
    return hasher.hexdigest()


def own_words(value: Any) -> Any:
    """The part of a request that has words of the session in it; None if there is none."""
    if isinstance(value, str):
        return value if any(word in value for word in WORDS) else None
    if isinstance(value, list):
        return [words for item in value if (words := own_words(item)) is not None] or None
    if isinstance(value, dict):
        return {key: words for key, item in value.items() if (words := own_words(item)) is not None} or None
    return None
