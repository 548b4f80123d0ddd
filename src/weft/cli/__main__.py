"""`python -m weft.cli` is `weft`."""

from weft.cli import main

main()
