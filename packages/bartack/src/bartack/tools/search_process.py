"""Finds lines that match a regular expression. Runs as a separate process and uses only the standard library.

A regular expression can take practically forever to match, and while Python matches one, no other thread runs, so no
time limit can fire. A separate process can be killed.

stdin: a line ``{"pattern", "ignoreCase", "limit", "lineChars"}``; then for each file a line ``[path, size]`` and that
many bytes. stdout, at the end: a line ``[path, number, text]`` for each match.
"""

import json
import os
import re
import sys


def main() -> None:
    """Read files and print matches; stop reading at the limit."""
    source = sys.stdin.buffer
    query = json.loads(source.readline())
    pattern = re.compile(query["pattern"], re.IGNORECASE if query["ignoreCase"] else 0)
    matches: list[list[object]] = []
    while len(matches) < query["limit"] and (header := source.readline()):
        path, size = json.loads(header)
        text = source.read(size).decode("utf-8", "replace").removesuffix("\n")
        for number, line in enumerate(text.split("\n"), 1):  # as editors and compilers count lines
            match = pattern.search(line)
            if match:
                matches.append([path, number, excerpt(line.removesuffix("\r"), match.start(), query["lineChars"])])
                if len(matches) == query["limit"]:
                    break
    os.close(0)  # the parent gets EPIPE and stops writing before we write
    sys.stdout.write("".join(f"{json.dumps(match)}\n" for match in matches))


def excerpt(line: str, position: int, limit: int) -> str:
    """The line, or the part of a long one around the match."""
    if len(line) <= limit:
        return line
    start = max(0, min(position - limit // 3, len(line) - limit))
    end = start + limit
    return f"{'...' if start else ''}{line[start:end]}{'...' if end < len(line) else ''}"


if __name__ == "__main__":
    main()
