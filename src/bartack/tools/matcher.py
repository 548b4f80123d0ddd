"""Finds lines that match a regular expression. Run as a program of its own, with the standard library only.

A regular expression can take longer than the universe, and while Python matches one nothing else in the process runs,
no clock and no time-out. In a process of its own it can be killed.

stdin: a line ``{"pattern", "ignoreCase", "limit", "lineChars"}``, then for each file a line ``[path, size]`` and so
many bytes. stdout, at the end: a line ``[path, number, text]`` for each match.
"""

import json
import os
import re
import sys


def main() -> None:
    """Read, match, print; stop reading at the limit."""
    source = sys.stdin.buffer
    wish = json.loads(source.readline())
    pattern = re.compile(wish["pattern"], re.IGNORECASE if wish["ignoreCase"] else 0)
    found: list[list[object]] = []
    while len(found) < wish["limit"] and (header := source.readline()):
        path, size = json.loads(header)
        for number, line in enumerate(source.read(size).decode("utf-8", "replace").splitlines(), 1):
            if pattern.search(line):
                found.append([path, number, line[: wish["lineChars"]]])
                if len(found) == wish["limit"]:
                    break
    os.close(0)  # whoever still writes is told before we do
    sys.stdout.write("".join(f"{json.dumps(one)}\n" for one in found))


if __name__ == "__main__":
    main()
