"""The `bartack` command. In: the command-line arguments. Out: an exit status, 2 if the arguments or the installation
are wrong.

A plain `pip install bartack` installs the command without the libraries of the `cli` extra. It then prints what to
install. Only libraries of our extras are reported this way; any other ImportError is a bug and is raised.
"""

import gc
import os
import signal
import sys
from typing import NoReturn

from bartack.app.extras import install_command
from bartack.cli.output import guard_stdout

_NO_STDOUT = "Redirect it to a file, or to /dev/null if you do not need the output."

_OBJECTS_BEFORE_COLLECTION = 20_000


def main() -> NoReturn:
    """Run the command line of this process and exit."""
    _fill_closed_streams()
    if sys.stdout is None:
        if sys.stderr is not None:
            print(f"bartack: stdout is closed.\nhint: {_NO_STDOUT}", file=sys.stderr)
        sys.exit(2)
    guard_stdout()
    # With Python's 700, a tenth of a short command is spent on going through modules that are being loaded.
    gc.set_threshold(_OBJECTS_BEFORE_COLLECTION)
    try:
        if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:  # see bartack_command.py
            signal.signal(signal.SIGINT, signal.default_int_handler)
        from bartack.cli.entry import run  # noqa: PLC0415 - its imports may be missing

        code = run(sys.argv[1:])
    except ModuleNotFoundError as error:
        command = install_command(error.name, sys.argv[1:])
        if command is None:
            raise
        print(f"bartack: {error.name} is not installed.\nhint: Run: {command}", file=sys.stderr)
        code = 2
    except KeyboardInterrupt:  # the command has not installed its own handler yet
        code = 130
    sys.exit(code)


def _fill_closed_streams() -> None:
    """Open what of stdin, stdout and stderr was closed, so that no database or pipe gets its number: uvloop aborts the
    process then. Python's own streams stay None."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number
