"""Commands that run in the background: each is a job with an id and a log, and ends with its runtime.

A job has a thread of its own, which runs the command as any other (`bartack.tools.shell`), without a time limit unless
it has one. All output goes to the log. `BackgroundJob.check` returns what was added since the last check, so a model
that polls reads each line once.
"""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import IO

from bartack.nouns.errors import ToolError
from bartack.tools.output import ToolOutput
from bartack.tools.shell import CommandResult, OutputBuffer

__all__ = ["BackgroundJob", "Jobs", "Work"]

_MAX_RUNNING = 16
_MAX_WAIT_S = 600.0
_POLL_S = 0.05
_READ_BYTES = 65_536

Work = Callable[[IO[bytes], threading.Event], CommandResult]  # runs the command until it ends or the event is set


class BackgroundJob:
    """A command in the background. Safe to use from several threads."""

    def __init__(self, job_id: str, command: str, log: Path) -> None:
        self.id: str = job_id
        self.command: str = command
        self.log: Path = log
        self._began = time.monotonic()
        self._ended_at: float | None = None
        self._stop = threading.Event()
        self._result: CommandResult | None = None
        self._problem = ""
        self._position = 0  # how far the log has been read
        self._reading = threading.Lock()
        self._thread: threading.Thread | None = None

    def start(self, work: Work) -> None:
        """Run the command in a thread."""
        self.log.touch(mode=0o600)
        self._thread = threading.Thread(target=self._run, args=(work,), name=f"bartack-{self.id}", daemon=True)
        self._thread.start()

    def _run(self, work: Work) -> None:
        try:
            with self.log.open("wb", buffering=0) as log:
                self._result = work(log, self._stop)
        except ToolError as error:
            self._problem = error.message
        except OSError as error:
            self._problem = str(error)
        finally:
            self._ended_at = time.monotonic()

    @property
    def is_running(self) -> bool:
        """Whether the command has not ended yet."""
        return self._ended_at is None

    @property
    def seconds(self) -> float:
        """How long it has been running, or ran."""
        return (time.monotonic() if self._ended_at is None else self._ended_at) - self._began

    @property
    def status(self) -> str:
        """How it is doing, in a few words."""
        result = self._result
        if self.is_running:
            return "running"
        if result is None:
            return f"could not be run: {self._problem}"
        if result.ending != "exited":
            return "killed" if result.ending == "stopped" else "timed out"
        return f"exit code {result.exit_code}" if result.exit_code >= 0 else f"killed by signal {-result.exit_code}"

    def stop(self) -> None:
        """Begin to terminate the command and all it has started."""
        self._stop.set()

    def kill(self) -> None:
        """Terminate the command and all it has started, and wait for that."""
        self.stop()
        if self._thread is not None:
            self._thread.join()

    def check(self, wait_s: float, max_bytes: int, stop: threading.Event) -> ToolOutput:
        """The status, and the output since the last check. Waits for the end of the job, at most this long."""
        deadline = time.monotonic() + min(wait_s, _MAX_WAIT_S)
        while self.is_running and time.monotonic() < deadline and not stop.is_set():
            time.sleep(_POLL_S)
        status = self.status  # before reading: a job that has ended writes no more
        text = self._unread(max_bytes)
        newline = "" if not text or text.endswith("\n") else "\n"
        note = f"[{self.id}: {status}, {self.seconds:.0f} s]" if text else f"[{self.id}: {status}, no new output]"
        return ToolOutput(f"{text}{newline}{note}", title=f"{self.id}: {self.command}"[:80])

    def _unread(self, max_bytes: int) -> str:
        output = OutputBuffer(max_bytes)
        with self._reading, suppress(FileNotFoundError), self.log.open("rb") as log:
            log.seek(self._position)
            while piece := log.read(_READ_BYTES):
                output.add(piece)
            self._position = log.tell()
        return output.getvalue().decode("utf-8", "replace")


class Jobs:
    """The jobs of one runtime."""

    def __init__(self) -> None:
        self._jobs: dict[str, BackgroundJob] = {}
        self._numbers = count(1)

    @property
    def all(self) -> list[BackgroundJob]:
        """All jobs, also those that have ended, in the order in which they were started."""
        return list(self._jobs.values())

    def start(self, command: str, folder: Path, work: Work) -> BackgroundJob:
        """Start a job whose log is in this folder. Raises `ToolError` if too many are running."""
        if sum(job.is_running for job in self.all) >= _MAX_RUNNING:
            raise ToolError(f"{_MAX_RUNNING} jobs are running. Kill one of them first.")
        job_id = f"job-{next(self._numbers)}"
        job = self._jobs[job_id] = BackgroundJob(job_id, command, folder / f"{job_id}.txt")
        job.start(work)
        return job

    def named(self, job_id: str) -> BackgroundJob:
        """The job with this id; `ToolError` if there is none."""
        job = self._jobs.get(job_id)
        if job is None:
            raise ToolError(f"There is no job {job_id!r}. Jobs: {', '.join(self._jobs) or 'none'}.")
        return job

    def close(self) -> None:
        """Kill all jobs, at the same time: each of them may take a second."""
        for job in self.all:
            job.stop()
        for job in self.all:
            job.kill()
