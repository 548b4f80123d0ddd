"""`bartack` as its next version: the same source, except that the number of the step protocol is higher.

python -m tests.workers.next_version worker ...
"""

import sys
from pathlib import Path
from types import ModuleType

import bartack

NAME = "bartack.queues.run_queue"
SOURCE = Path(bartack.__file__).with_name("queues") / "run_queue.py"


def install() -> None:
    """Let the queues import the next version of the module with the protocol."""
    assert NAME not in sys.modules
    text = SOURCE.read_text(encoding="utf-8")
    changed = text.replace("\nPROTOCOL = 1 ", "\nPROTOCOL = 2 ")
    assert changed != text
    module = ModuleType(NAME)
    module.__file__ = str(SOURCE)
    sys.modules[NAME] = module
    exec(compile(changed, str(SOURCE), "exec"), module.__dict__)


if __name__ == "__main__":
    install()
    from bartack.cli import main

    main()
