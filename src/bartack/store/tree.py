"""The tree of a session, told by its jumps.

Most entries follow the one before them. A jump is an entry that does not: its seq, and the seq of its parent. A
session has as many jumps as branches were begun, so a store keeps them in a small side table and never walks the
entries to find a branch: between two jumps the seqs of a branch are a range.
"""

from bisect import bisect_right
from collections.abc import Mapping

__all__ = ["heads", "path"]

Jumps = Mapping[int, int]  # seq of an entry -> seq of its parent, where that is not the one before


def heads(tail_seq: int, jumps: Jumps) -> list[int]:
    """The seqs that nothing follows, in order. Only what stands before a jump, and the tail, can be one."""
    followed = set(jumps.values())
    ends = {seq - 1 for seq in jumps} | {tail_seq}
    return sorted(ends - followed)


def path(head_seq: int, jumps: Jumps) -> list[range]:
    """The seqs from the first entry to `head_seq`, as ranges in order."""
    places = sorted(jumps)
    ranges: list[range] = []
    here = head_seq
    while True:
        before = bisect_right(places, here)
        if before == 0:
            ranges.append(range(1, here + 1))
            return ranges[::-1]
        jump = places[before - 1]
        ranges.append(range(jump, here + 1))
        here = jumps[jump]
