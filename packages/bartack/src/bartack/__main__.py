"""`python -m bartack` is the same as `bartack`."""

from bartack.cli import main

main()
