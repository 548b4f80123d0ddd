"""How every command of `bartack` is made, so that all of them look and fail alike."""

import typer


def new_app(summary: str) -> typer.Typer:
    """An empty typer app for one command module: plain help pages, and errors left to `bartack.cli.app`."""
    return typer.Typer(
        help=summary,
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,  # rich help pages take three times as long
        pretty_exceptions_enable=False,
    )
