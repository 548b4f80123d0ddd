"""The `bartack` command. In: the command-line arguments. Out: an exit status, 2 if the arguments or the installation
are wrong.

A plain `pip install bartack` installs the command without the libraries of the `cli` extra. It then prints what to
install. Only libraries of our extras are reported this way; any other ImportError is a bug and is raised.
"""

import io
import sys
from importlib.util import find_spec
from typing import NoReturn

from bartack.app.extras import install_command

_ALWAYS_NEEDED = ("typer", "rich")


def main() -> NoReturn:
    """Run the command line of this process and exit."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # a character its encoding lacks must not be fatal
        sys.stdout.reconfigure(errors="replace")
    try:
        for library in _ALWAYS_NEEDED:
            if find_spec(library) is None:
                raise ModuleNotFoundError(name=library)
        from bartack.cli.entry import run  # noqa: PLC0415 - its imports may be missing

        code = run(sys.argv[1:])
    except ModuleNotFoundError as error:
        command = install_command(error.name, sys.argv[1:])
        if command is None:
            raise
        print(f"bartack: {error.name} is not installed.\nhint: Run: {command}", file=sys.stderr)
        code = 2
    except KeyboardInterrupt:  # before the command installed its own handler
        code = 130
    sys.exit(code)
