"""The checks of models in `bartack doctor`: which ones could be used, and with --ask how each of them answers."""

import asyncio
import hashlib
import time
from collections.abc import Iterable, Iterator, Sequence
from importlib.util import find_spec

from bartack.app.agent_setup import connect_model
from bartack.app.errors import failure_hint, with_hint
from bartack.app.settings import settings_file
from bartack.models.by_name import connect
from bartack.models.model import Model
from bartack.models.vendors import VENDORS
from bartack.models.weights import LocalWeights, weights_named
from bartack.nouns.deltas import Failed, TextDelta
from bartack.nouns.errors import BartackError, ErrorCode, ModelError
from bartack.nouns.messages import user
from bartack_code.doctor.checks import Check, Probe, State, configured_model, error_check, keys_set

LIMIT_S = 20.0  # limit for a whole answer of a few words
_MAX_TOKENS = 16  # the smallest limit that every vendor accepts
_LONGEST = 60  # characters of an answer that are shown
_PROMPT = "Say hi."
_HINT = "Name a model as VENDOR:MODEL, or the local one as local or local:NAME."


def model_probes(model_names: Sequence[str], *, ask: bool) -> list[Probe]:
    """Probes of the named models, or else of the configured one, one of each vendor with a key, and the local one."""

    def chosen_names() -> Sequence[str]:
        configured = configured_model()
        return model_names or ([] if configured is None else [configured])

    def vendors() -> Iterator[Check]:
        own = [name for name in chosen_names() if not _is_local(name)]
        names = own if model_names else list(dict.fromkeys([*own, *_default_models()]))
        if ask:
            yield from asyncio.run(_ask_all(names))
        else:
            problems = {name: problem for name in names if (problem := _problem(name)) is not None}
            yield from problems.values()
            usable = [name for name in names if name not in problems]
            hint = "'bartack doctor --ask' sends each model a short prompt."
            if usable or not problems:
                yield Check("not asked", "ok", ", ".join(usable) or "no vendor has a key", hint)
        if not model_names:
            yield from _vendors_without_default()

    def local() -> Iterator[Check]:
        own = [name for name in chosen_names() if _is_local(name)]
        for name in own if model_names else own or ["local"]:
            yield from _local(name, ask=ask, missing="error" if name in own and ask else "note")

    return [Probe("models", "vendors", vendors, _HINT), Probe("models", "local", local, _HINT)]


def _is_local(name: str) -> bool:
    return name == "local" or name.startswith(("local:", "local/"))


def _default_models() -> list[str]:
    """The default model of each vendor whose key is set."""
    keys = keys_set().keys()
    rows = (row for row in VENDORS.values() if row.default_model is not None and keys & {*row.key_names})
    return [f"{row.name}:{row.default_model}" for row in rows]


def _problem(name: str) -> Check | None:
    """Why a model cannot be used, if that is known without sending a request."""
    try:
        connect_model(name)
    except BartackError as error:
        return error_check(name, error, _HINT)
    return None


def _vendors_without_default() -> Iterator[Check]:
    """Vendors with a key whose models are deployments of the account, so that none can be chosen."""
    key_names = {variable for row in VENDORS.values() if row.default_model for variable in row.key_names}
    for variable in keys_set():
        if variable not in key_names:
            vendor = next(name for name, row in VENDORS.items() if variable in row.key_names)
            hint = f"Run 'bartack doctor --ask --model {vendor}:MODEL'."
            yield Check(vendor, "note", "not asked: it has no default model", hint)


# -- asking


async def _ask_all(names: Sequence[str]) -> Iterable[Check]:
    answers = await asyncio.gather(*map(_ask, names), return_exceptions=True)
    return [
        Check(name, "ok", answer) if isinstance(answer, str) else error_check(name, answer, _HINT)
        for name, answer in zip(names, answers, strict=True)
    ]


async def _ask(name: str) -> str:
    """The answer to a short prompt, and how long it took. Raises `ModelError` with a hint."""
    start = time.monotonic()
    # With settings it is asked as a run would be, because some settings conflict with so few tokens.
    model = connect_model(name) if _has_model_settings() else connect(name, max_tokens=_MAX_TOKENS)
    pieces: list[str] = []
    try:
        async with asyncio.timeout(LIMIT_S):
            async for delta in model.stream([user(_PROMPT)]):
                match delta.delta:
                    case TextDelta():
                        pieces.append(delta.delta.text_delta)
                    case Failed():
                        raise _model_error(delta.delta, model)
                    case _:
                        pass
    except TimeoutError as error:
        raise _model_error(Failed(ErrorCode.TIMEOUT, f"no answer within {LIMIT_S:.0f} s"), model) from error
    finally:
        await model.aclose()
    text = " ".join("".join(pieces).split())
    quoted = f"{text[:_LONGEST]!r}" if text else "an empty answer"
    return f"{quoted} in {time.monotonic() - start:.1f} s"


def _has_model_settings() -> bool:
    try:
        return bool(settings_file().settings.model_settings)
    except BartackError:  # reported by another check
        return False


def _model_error(failed: Failed, model: Model) -> ModelError:
    error = ModelError(failed.message, code=failed.error_code)
    return with_hint(error, failure_hint(failed.error_code, model, failed.retry_after_ms))


# -- the local model


def _local(name: str, *, ask: bool, missing: State) -> Iterator[Check]:
    """The weights, and with `ask` an answer. `missing` is the state if they are not downloaded."""
    weights = weights_named(name[len("local:") :] or None)
    label = f"local:{weights.model_id}"
    if not weights.path.is_file():
        yield _not_downloaded(label, weights, missing)
        return
    size, verified = weights.path.stat().st_size, ""
    if weights.known is not None and weights.known.size not in (0, size):
        yield _damaged(label, weights, f"{size} bytes instead of {weights.known.size}")
        return
    if ask and weights.known is not None and weights.known.sha256:
        with weights.path.open("rb") as file:
            checksum = hashlib.file_digest(file, "sha256").hexdigest()
        if checksum != weights.known.sha256:
            yield _damaged(label, weights, "wrong checksum")
            return
        verified = ", checksum verified"
    yield Check(weights.model_id, "ok", f"{weights.path} ({size / 1e6:.0f} MB{verified})")
    if find_spec("xllamacpp") is None:
        yield Check(label, missing, "needs xllamacpp, which is not installed", "Run: pip install 'bartack[local]'")
    elif ask:
        yield from asyncio.run(_ask_all([f"local:{weights.path}" if weights.known is None else label]))


def _not_downloaded(label: str, weights: LocalWeights, state: State) -> Check:
    if weights.known is None:
        hint = "Set BARTACK_LOCAL_MODEL, or use local:PATH, with the path of a .gguf file."
        return Check(label, "error", f"{weights.path} does not exist", hint)
    size = weights.known.size
    text = "not downloaded" if not size else f"not downloaded ({size / 1e6:.0f} MB)"
    return Check(label, state, text, f"Run 'bartack models pull {weights.known.name}'.")


def _damaged(label: str, weights: LocalWeights, problem: str) -> Check:
    hint = f"Run 'bartack models remove {weights.model_id} && bartack models pull {weights.model_id}'."
    return Check(label, "error", f"{weights.path} is damaged: {problem}", hint)
