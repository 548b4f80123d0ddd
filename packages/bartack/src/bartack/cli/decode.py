"""`bartack decode`: decode recorded responses of a provider, for debugging."""

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from bartack.app.safe_text import valid_text
from bartack.cli.options import new_app
from bartack.cli.output import note, print_json
from bartack.formats import FORMATS, decoder, guess_format
from bartack.formats.framing import FramingName, sniff
from bartack.nouns.deltas import Done, Failed, MessageDelta
from bartack.nouns.errors import BartackError, ErrorCode, PartValidationError
from bartack.nouns.wire import dump
from bartack.stream.assembler import MessageAssembler
from bartack.stream.contract import DeltaStamper

app = new_app("Decode recorded provider streams.")

_NAMES = ", ".join(FORMATS)
AnyFraming = Literal["auto", FramingName]


def _known(format: str | None) -> str | None:
    if format is not None and format not in FORMATS:
        raise typer.BadParameter(f"unknown format {format!r}; choose from {_NAMES}")
    return format


@app.command()
def decode(
    paths: Annotated[list[Path], typer.Argument(metavar="PATH", help="Recorded response body; - is stdin.")],
    format: Annotated[
        str | None,
        typer.Option(metavar="NAME", callback=_known, help=f"Wire format (default: detected): {_NAMES}."),
    ] = None,
    provider: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Vendor of the response, where vendors differ (default: the format's own)."),
    ] = None,
    framing: Annotated[AnyFraming, typer.Option(help="Framing of the events in the body.")] = "auto",
    deltas: Annotated[bool, typer.Option("--deltas", help="Print each delta instead of the message.")] = False,
) -> None:
    """Decode recorded response bodies. Prints one line of JSON per file: {"file", "message", "error"}.

    The exit status is 0 only if every stream is complete.
    """
    all_done = True
    for path in paths:
        try:
            stamped = _decode_file(path, format, provider, None if framing == "auto" else framing)
        except (BartackError, OSError) as error:
            stamped = []
            failure = _failure(error)
            note(f"bartack: {path}: {failure['message']}")
            print_json({"file": valid_text(str(path)), "message": None, "error": failure})
        else:
            _show(path, stamped, as_deltas=deltas)
        all_done &= bool(stamped) and isinstance(stamped[-1].delta, Done)
    raise typer.Exit(0 if all_done else 1)


def _decode_file(
    path: Path, format: str | None, provider: str | None, framing: FramingName | None
) -> list[MessageDelta]:
    is_stdin = str(path) == "-"
    body = sys.stdin.buffer.read() if is_stdin else path.read_bytes()
    # The time of the file, so that the same file always gives the same output.
    received_at = datetime.now(UTC) if is_stdin else datetime.fromtimestamp(path.stat().st_mtime, UTC)
    framing = framing or sniff(body)
    format = format or guess_format(body, framing)
    if format is None:
        raise PartValidationError(
            f"Cannot detect the format; name it with --format ({_NAMES}).",
            path="--format",
            code=ErrorCode.INVALID_CONFIG,
        )
    reader = decoder(format, framing=framing, provider=provider)
    return DeltaStamper(valid_text(path.name)).stamp([*reader.receive_data(body), *reader.receive_eof()], received_at)


def _show(path: Path, stamped: list[MessageDelta], *, as_deltas: bool) -> None:
    if as_deltas:
        for delta in stamped:
            print_json({"file": valid_text(str(path)), **dump(delta)})
        return
    assembler = MessageAssembler()
    for delta in stamped:
        assembler.consume(delta)
    error = assembler.get_error()
    message = dump(assembler.build_final_message()) if error is None else None
    print_json(
        {"file": valid_text(str(path)), "message": message, "error": None if error is None else dump(error)["payload"]}
    )


def _failure(error: BartackError | OSError) -> Any:
    if isinstance(error, BartackError):
        return dump(Failed(error.code, error.message))["payload"]
    return dump(Failed(ErrorCode.NOT_FOUND, error.strerror or str(error)))["payload"]
