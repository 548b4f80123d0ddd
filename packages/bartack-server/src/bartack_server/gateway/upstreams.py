"""`Upstreams`: the models behind the names that clients use.

A name is an alias from the configuration, with the models that answer for it in order of preference:

    Upstreams({"sonnet": ["anthropic:claude-sonnet-4-6", "bedrock:anthropic.claude-sonnet-4-6", "local"]})

Any other name goes to `default`, if there is one, so that a program which insists on its own model names can use any
model. Without a default, a name is that of a model whose vendor has a key in the environment: ``anthropic:...``, or the
plain ``claude-...``. Clients cannot choose an address: upstreams come from the configuration and the environment only.

An upstream that asks for a pause (`Retry-After`) gets it: until then it is passed over, and if there is no other, the
client is told to wait without a call. Clients retry by themselves, so the gateway asks each upstream only once, and at
most `MAX_ATTEMPTS` of them.
"""

import os
import time
from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from bartack.models.by_name import connect, likely_name
from bartack.models.model import StreamingModel
from bartack.models.provider import ProviderModel
from bartack.models.vendors import VENDORS, is_vendor
from bartack.nouns.deltas import Failed
from bartack.nouns.errors import ErrorCode, ModelError, PartValidationError

__all__ = ["MAX_ATTEMPTS", "Upstream", "Upstreams", "error_for_client", "may_fail_over"]

MAX_ATTEMPTS = 3
_MAX_UPSTREAMS = 500  # no more are remembered, because clients may invent names
_MAX_PAUSE_S = 60.0  # providers also report when the quota of a day is renewed
# Another upstream would refuse the same request for the same reason.
_FINAL = frozenset((ErrorCode.INVALID_REQUEST, ErrorCode.REQUEST_TOO_LARGE, ErrorCode.CONTENT_FILTER))
_OWN_CREDENTIALS = frozenset((ErrorCode.AUTHENTICATION, ErrorCode.PERMISSION_DENIED, ErrorCode.MISSING_CREDENTIALS))


class Upstream:
    """One model, and when it may be asked again."""

    def __init__(self, name: str, model: StreamingModel, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.name = name
        self.model = model
        self._clock = clock
        self._paused_until = 0.0
        self._pause: Failed | None = None  # why

    @property
    def format(self) -> str | None:
        """The wire format that the model speaks; None for a model in this process."""
        return self.model.vendor.format if isinstance(self.model, ProviderModel) else None

    def pause(self) -> Failed | None:
        """Why the upstream must not be asked now, with the time that is left; None if it may."""
        left_s = self._paused_until - self._clock()
        if self._pause is None or left_s <= 0:
            return None
        return replace(self._pause, retry_after_ms=round(left_s * 1000))

    def note(self, failed: Failed) -> None:
        """Remember the pause that an error asks for."""
        if failed.retry_after_ms is not None:
            self._paused_until = self._clock() + min(failed.retry_after_ms / 1000, _MAX_PAUSE_S)
            self._pause = failed


def may_fail_over(failed: Failed) -> bool:
    """Whether another upstream may answer a request that failed like this."""
    return failed.error_code not in _FINAL


def error_for_client(upstream: Upstream, failed: Failed) -> Failed:
    """The error as the client may see it: refused credentials are those of the gateway, not its own."""
    if failed.error_code not in _OWN_CREDENTIALS:
        return failed
    message = f"The gateway's credentials for {upstream.name} were refused: {failed.message}"
    return replace(failed, error_code=ErrorCode.PERMISSION_DENIED, message=message)


class Upstreams:
    """Finds the upstreams for a name."""

    def __init__(
        self,
        models: Mapping[str, Sequence[str | StreamingModel]] | None = None,
        *,
        default: Sequence[str | StreamingModel] = (),
        connect: Callable[[str], StreamingModel] = connect,
    ) -> None:
        """`connect` creates the model of a name. Raises `BartackError` if one cannot be created."""
        self._connect = connect
        self._upstreams: dict[str, Upstream] = {}
        self._models = {name: [self._upstream(model) for model in models] for name, models in (models or {}).items()}
        self._default = [self._upstream(model) for model in default]

    @property
    def names(self) -> list[str]:
        """The names that clients may list."""
        if self._models or self._default:
            return [*self._models, *(upstream.name for upstream in self._default if upstream.name not in self._models)]
        vendors = [vendor for vendor in VENDORS.values() if vendor.default_model and vendor.needs_key]
        return [
            f"{vendor.name}:{vendor.default_model}" for vendor in vendors if any(map(os.environ.get, vendor.key_names))
        ]

    def named(self, name: str) -> list[Upstream]:
        """The upstreams of a model, in order of preference. Raises `ModelError` if there is none."""
        upstreams = self._models.get(name) or self._default
        if upstreams:
            return upstreams
        hint = f" The models are {', '.join(self.names)}." if self.names else ""
        if not self._models:
            try:
                return [self._chosen_by_client(name)]
            except (ModelError, PartValidationError) as error:
                hint = f" {error.message}"
        raise ModelError(f"There is no model {name[:200]!r}.{hint}", code=ErrorCode.MODEL_NOT_FOUND)

    def add(self, name: str, model: StreamingModel) -> None:
        """Serve a model by this name."""
        self._models[name] = [self._upstream(model)]

    def _chosen_by_client(self, name: str) -> Upstream:
        """A vendor's model by its name. Local models are left out, because their names can be paths."""
        full_name = name if ":" in name else likely_name(name) or name
        if not is_vendor(full_name.partition(":")[0]):
            raise PartValidationError("Name it vendor:model, or add it to the configuration.")
        if full_name in self._upstreams or len(self._upstreams) < _MAX_UPSTREAMS:
            return self._upstream(full_name)
        return Upstream(full_name, self._connect(full_name))

    def _upstream(self, model: str | StreamingModel) -> Upstream:
        if not isinstance(model, str):
            return Upstream(model.get_config().model_id, model)
        if model not in self._upstreams:
            self._upstreams[model] = Upstream(model, self._connect(model))
        return self._upstreams[model]

    async def aclose(self) -> None:
        """Close the connections of all models."""
        chains = (self._upstreams.values(), self._default, *self._models.values())
        for model in {id(upstream.model): upstream.model for chain in chains for upstream in chain}.values():
            await model.aclose()
