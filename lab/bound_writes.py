"""Approve edits of a file that another process rewrites in a tight loop: no write of that process may be lost.

    python -m lab.bound_writes [--approvals 500]

The other process counts in the file, by turns in place and by renaming a new file over it, and checks before each write
that the file still has its last count. An edit that was approved for an earlier content would restore an earlier count.
"""

import argparse
import asyncio
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bartack import Agent, ToolCall, assistant
from bartack.models import ScriptedModel
from bartack.nouns.entries import ApprovalRequired
from bartack.session.decisions import Decision
from bartack.tools import LocalRuntime, file_tools

_QUESTIONS = 3  # approved per call; then the call is denied, because the file may never hold still

_WRITER = """
import os, random, sys, time
path, log = sys.argv[1:]
count = 0

def write(text):
    if count % 2:
        with open(path, "w") as file:
            file.write(text)
    else:
        with open(path + ".next", "w") as file:
            file.write(text)
        os.replace(path + ".next", path)

def read():
    with open(path) as file:
        return file.read()

write("0 marks:")
while True:
    text = read()
    if not text.startswith(f"{count} "):
        time.sleep(0.5)  # an exchange that is taken back is visible for a moment
        text = read()
        if not text.startswith(f"{count} "):
            with open(log, "a") as file:
                file.write(f"{count} became {text!r}\\n")
            text = f"{count} marks:"
    count += 1
    write(f"{count} {text.partition(' ')[2]}")
    if random.random() < 0.01:
        time.sleep(random.random() * 0.06)
"""


def start_writer(file: Path) -> "subprocess.Popen[bytes]":
    """The other process, once it has written for the first time."""
    writer = subprocess.Popen([sys.executable, "-c", _WRITER, str(file), str(file.with_name("log"))])
    while not file.exists():
        time.sleep(0.01)
    return writer


class _Approver:
    """Approves a few times, and then denies."""

    def __init__(self, approvals: int) -> None:
        self.remaining = approvals
        self._asked: dict[str, int] = {}

    async def decide(self, request: ApprovalRequired) -> Decision:
        self._asked[request.tool_call_id] = self._asked.get(request.tool_call_id, 0) + 1
        if self._asked[request.tool_call_id] > _QUESTIONS or not self.remaining:
            return Decision("deny")
        self.remaining -= 1
        return Decision("approve")


async def lost_writes(root: Path, file: Path, approvals: int) -> tuple[list[str], int]:
    """Give so many approvals; the writes that were lost, and the number of edits that were made."""
    approver, written, number = _Approver(approvals), 0, 0
    while approver.remaining:
        number += 1
        arguments = {"path": file.name, "old": "marks:", "new": "marks:*"}
        model = ScriptedModel([assistant(ToolCall(f"c{number}", "edit_file", arguments)), "done"])
        async with Agent(model, tools=file_tools(), runtime=LocalRuntime(root), approver=approver) as agent:
            result = await agent.run("Edit it.")
        written += sum(not part.is_error for message in result.messages for part in message.tool_results)
    await asyncio.sleep(0.1)  # the writer notices what it lost
    return await asyncio.to_thread(_lines, root / "log"), written


def _lines(log: Path) -> list[str]:
    return log.read_text().splitlines() if log.exists() else []


def main() -> None:
    """Run the experiment; the status is 1 if a write was lost, or nothing was written."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--approvals", type=int, default=500)
    approvals = parser.parse_args().approvals
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        writer = start_writer(root / "a.txt")
        try:
            lost, written = asyncio.run(lost_writes(root, root / "a.txt", approvals))
        finally:
            writer.kill()
            writer.wait()
    print(f"{approvals} approvals, {written} edits, {len(lost)} lost writes", *lost[:10], sep="\n")
    sys.exit(1 if lost or not written else 0)


if __name__ == "__main__":
    main()
