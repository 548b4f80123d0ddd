"""Where the `bartack` command starts: a Ctrl-C while the libraries are still imported ends it without a traceback.

This is not a module of the package, because importing one imports the package first, and that is most of the time until
`main` can handle Ctrl-C.
"""

import signal

if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # shells start background jobs with SIGINT ignored
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from bartack.cli import main

__all__ = ["main"]
