"""`python -m bartack.cli` is the same as `bartack`."""

from bartack.cli import main

main()
