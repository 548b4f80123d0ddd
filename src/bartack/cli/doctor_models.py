"""What `bartack doctor` says about models: which could be asked, and with --ask what each of them answers."""

import asyncio
import hashlib
import time
from collections.abc import Iterable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

from bartack.cli.agent_setup import connected
from bartack.cli.doctor_checks import Check, Probe, State, fault_of, keys_set
from bartack.cli.doctor_setup import configured_model, settings_or_none
from bartack.models.by_name import connect
from bartack.models.vendors import VENDORS
from bartack.models.weights import LocalWeights, weights_named
from bartack.nouns.deltas import Failed, TextDelta
from bartack.nouns.errors import BartackError, ErrorCode, ModelError
from bartack.nouns.messages import user

__all__ = ["LIMIT_S", "model_probes"]

LIMIT_S = 20.0  # for a whole answer of a few words
_MAX_TOKENS = 16  # the least that every vendor takes
_LONGEST = 60  # characters of an answer that are shown
_QUESTION = "Say hi."

_LATER = "the vendor can be reached and knows the key; try again later"
_HINTS = {
    ErrorCode.AUTHENTICATION: "the vendor does not take the key: see whether it is whole, and still good",
    ErrorCode.PERMISSION_DENIED: "the key is good, and not for this; the vendor's web site says what it may do",
    ErrorCode.MODEL_NOT_FOUND: "name a model that you may use: bartack doctor --ask --model VENDOR:MODEL",
    ErrorCode.RATE_LIMITED: _LATER,
    ErrorCode.QUOTA_EXCEEDED: "the account is used up; the vendor's web site says more",
    ErrorCode.OVERLOADED: _LATER,
    ErrorCode.SERVER_ERROR: _LATER,
    ErrorCode.CONNECTION_FAILED: "see to the network, the proxy (HTTPS_PROXY) and the address (<VENDOR>_BASE_URL)",
    ErrorCode.TIMEOUT: "see to the network and the proxy (HTTPS_PROXY), or try again",
}
_HINT = "see whether the name is right: VENDOR:MODEL, and for the local model: local or local:NAME"


def model_probes(named: Sequence[str], *, ask: bool) -> list[Probe]:
    """`named` are the models to look at; without any, the configured one, the default one of each vendor with a key,
    and the local one."""

    def wanted() -> Sequence[str]:
        configured = configured_model()
        return named or ([] if configured is None else [configured])

    def vendors() -> Iterator[Check]:
        own = [name for name in wanted() if not _is_local(name)]
        names = own if named else list(dict.fromkeys([*own, *_with_key()]))
        if ask:
            yield from asyncio.run(_ask_all(names))
        else:
            hint = "bartack doctor --ask asks each one small question, and the local model too"
            yield Check("models", "not asked", "ok", ", ".join(names) or "no vendor, for want of a key", hint)
        if not named:
            yield from _without_default()

    def local() -> Iterator[Check]:
        own = [name for name in wanted() if _is_local(name)]
        for name in own if named else own or ["local"]:
            yield from _local(name, ask=ask, absent="fault" if name in own and ask else "note")

    return [Probe("models", "vendors", vendors, _HINT), Probe("models", "local", local, _HINT)]


def _is_local(name: str) -> bool:
    return name == "local" or name.startswith(("local:", "local/"))


def _with_key() -> list[str]:
    known = keys_set()
    rows = (row for row in VENDORS.values() if row.default_model is not None)
    return [f"{row.name}:{row.default_model}" for row in rows if known.keys() & {*row.key_names}]


def _without_default() -> Iterator[Check]:
    """Keys of vendors for which nobody knows a model: a name there is a deployment, or an account's."""
    asked = {variable for row in VENDORS.values() if row.default_model for variable in row.key_names}
    for variable in keys_set():
        if variable not in asked:
            vendor = next(name for name, row in VENDORS.items() if variable in row.key_names)
            hint = f"bartack doctor --ask --model {vendor}:MODEL"
            yield Check("models", vendor, "note", "not asked, since only you know which models there are", hint)


# -- asking


async def _ask_all(names: Sequence[str]) -> Iterable[Check]:
    answers = await asyncio.gather(*map(_ask, names), return_exceptions=True)
    return [_told(name, answer) for name, answer in zip(names, answers, strict=True)]


def _told(name: str, answer: str | BaseException) -> Check:
    if isinstance(answer, str):
        return Check("models", name, "ok", answer)
    code = answer.code if isinstance(answer, BartackError) else None
    return fault_of("models", name, answer, _HINTS.get(code, _HINT) if code else _HINT)


async def _ask(name: str) -> str:
    """How the model answers a small question, and how long it takes; raises `ModelError` if it does not."""
    began = time.monotonic()
    settings = settings_or_none()
    # With settings it is asked as a run asks it: some of them do not go with so few tokens.
    has_own = settings is not None and bool(settings.model_settings)
    model = connected(name) if has_own else connect(name, max_tokens=_MAX_TOKENS)
    said: list[str] = []
    try:
        async with asyncio.timeout(LIMIT_S):
            async for each in model.stream([user(_QUESTION)]):
                match each.delta:
                    case TextDelta():
                        said.append(each.delta.text_delta)
                    case Failed():
                        raise ModelError(each.delta.message, code=each.delta.error_code)
                    case _:
                        pass
    except TimeoutError as error:
        raise ModelError(f"no answer within {LIMIT_S:.0f} s", code=ErrorCode.TIMEOUT, cause=error) from error
    finally:
        await model.aclose()
    text = " ".join("".join(said).split())
    told = f"{text[:_LONGEST]!r}" if text else "an answer without text"
    return f"{told} in {time.monotonic() - began:.1f} s"


# -- the local model


def _local(name: str, *, ask: bool, absent: State) -> Iterator[Check]:
    """Its file, and with `ask` its answer. That it is not here is no fault for those who did not ask for it."""
    weights = weights_named(name[len("local:") :] or None)
    label = f"local:{weights.model_id}"
    if not weights.path.is_file():
        yield _not_here(label, weights, absent)
        return
    size, digest = weights.path.stat().st_size, ""
    if weights.known is not None and size != weights.known.size:
        yield _damaged(label, weights, f"{size} bytes, not {weights.known.size}")
        return
    if ask and weights.known is not None:
        if _digest_of(weights.path) != weights.known.sha256:
            yield _damaged(label, weights, "its digest is wrong")
            return
        digest = ", digest verified"
    yield Check("models", weights.model_id, "ok", f"here, {size / 1e6:.0f} MB{digest}: {weights.path}")
    if find_spec("xllamacpp") is None:
        yield Check("models", label, absent, "cannot run without xllamacpp", "pip install 'bartack[local]'")
    elif ask:
        yield from asyncio.run(_ask_all([f"local:{weights.path}" if weights.known is None else label]))


def _not_here(label: str, weights: LocalWeights, state: State) -> Check:
    if weights.known is None:
        hint = "BARTACK_LOCAL_MODEL and local:PATH take the path of a .gguf file"
        return Check("models", label, "fault", f"there is no file {weights.path}", hint)
    text = f"not on this machine ({weights.known.size / 1e6:.0f} MB)"
    return Check("models", label, state, text, f"bartack models pull {weights.known.name} fetches it")


def _damaged(label: str, weights: LocalWeights, how: str) -> Check:
    hint = f"bartack models remove {weights.model_id} && bartack models pull {weights.model_id}"
    return Check("models", label, "fault", f"{weights.path} is damaged: {how}", hint)


def _digest_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
