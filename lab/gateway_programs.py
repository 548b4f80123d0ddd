"""Run Claude Code, Codex and Gemini CLI, installed from npm, against a gateway with a scripted model.

Each program has to run a tool call, send its result and show the answer, and must not run the call of an answer that
was cut off right after it. `bartack gateway check` does the same with the programs of a user.
"""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

from bartack_server.gateway.check import CHECKED, check_program
from lab.repository import ROOT

FOLDER = ROOT / ".interop" / "gateway"
PACKAGES = ("@anthropic-ai/claude-code", "@openai/codex", "@google/gemini-cli")


def main() -> int:
    """Install the programs and check each; 0 if everything works."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    words = ["npm", "install", "--prefix", str(FOLDER), "--no-audit", "--no-fund", "--silent", *PACKAGES]
    subprocess.run(words, check=True)
    path = os.pathsep.join((str(Path(FOLDER, "node_modules", ".bin")), os.environ["PATH"]))
    has_failed = False
    for program in CHECKED:
        for finding in asyncio.run(check_program(program, path)):
            has_failed |= not finding.is_true
            print("ok  " if finding.is_true else "FAIL", program, finding.claim, flush=True)
            if not finding.is_true:
                print(finding.detail)
    return int(has_failed)


if __name__ == "__main__":
    sys.exit(main())
