"""`python -m bartack.cli` is `bartack`."""

from bartack.cli import main

main()
