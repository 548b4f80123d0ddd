"""The `bartack` command. In: the words after `bartack`. Out: an exit code, 2 if the words or the installation are wrong.

A plain `pip install bartack` puts the command on the path too, without the libraries of the `cli` extra. Then one sentence
says what to install. Only a library of an extra is reported so; any other ImportError is a fault and is raised.
"""

import io
import sys
from importlib.util import find_spec
from typing import NoReturn

__all__ = ["main"]

NEEDED_ALWAYS = ("typer", "rich")

EXTRA_OF = {
    "typer": "cli",
    "rich": "cli",
    "prompt_toolkit": "cli",
    "platformdirs": "cli",
    "aiohttp": "http",
    "genai_prices": "prices",
    "botocore": "bedrock",
    "google": "vertex",  # a namespace: absent as a whole, or there without auth
    "google.auth": "vertex",
    "apsw": "sqlite",
    "asyncpg": "postgres",
    "xllamacpp": "local",
}


def main() -> NoReturn:
    """Run the command line of this process and exit."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # a letter that its encoding lacks is no reason to fail
        sys.stdout.reconfigure(errors="replace")
    try:
        for library in NEEDED_ALWAYS:
            if find_spec(library) is None:
                raise ModuleNotFoundError(name=library)
        from bartack.cli.app import run  # noqa: PLC0415 - what it imports may be absent

        code = run(sys.argv[1:])
    except ModuleNotFoundError as error:
        extra = EXTRA_OF.get(error.name or "")
        if extra is None:
            raise
        print(f"bartack: {error.name} is not installed; get it with: pip install 'bartack[{extra}]'", file=sys.stderr)
        code = 2
    except KeyboardInterrupt:  # before the command could take Ctrl-C itself
        code = 130
    sys.exit(code)
