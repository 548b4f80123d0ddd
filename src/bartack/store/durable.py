"""Files and folders that survive a loss of power: a name is durable once the folder that holds it is synced."""

import os
import sys
from pathlib import Path

__all__ = ["make_folder", "sync_folder", "write_all", "write_file"]


def make_folder(folder: Path) -> None:
    """Make a folder, and those above it, for their owner alone."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True, mode=0o700)
        sync_folder(folder.parent)


def write_file(path: Path, data: bytes) -> None:
    """A file that is there whole or not at all, for its owner alone."""
    part = path.with_name(f"{path.name}.part")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        write_all(descriptor, data)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    part.replace(path)
    sync_folder(path.parent)


def write_all(descriptor: int, data: bytes) -> None:
    """Write every byte; the system may take only some of them at a time."""
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable, where the system lets one."""
    if sys.platform == "win32":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
