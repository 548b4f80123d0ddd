"""``bartack.connect("anthropic:claude-sonnet-4-6")``: a vendor's row, the environment and a few settings -> a model.

``bartack.connect("local")`` and ``bartack.connect("local:NAME")`` give one that runs in this process.

The environment is read here and nowhere else: the vendor's key (``ANTHROPIC_API_KEY``), its base address
(``ANTHROPIC_BASE_URL``) and, for clouds, region, project and location. What the caller says wins.
"""

import os
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, overload

from msgspec.structs import replace

from bartack.environment import Environment
from bartack.models.auth import AwsSignature, Credentials, GoogleToken, HeaderKey, NoCredentials
from bartack.models.client import ProviderClient, Timeouts
from bartack.models.local import LocalModel
from bartack.models.model import updated_config
from bartack.models.provider import ErrorMapper, ProviderModel
from bartack.models.vendors import AWS_REGION, VENDORS, Vendor, vendor_named
from bartack.nouns.config import CacheConfig, ModelConfig
from bartack.nouns.errors import ErrorCode, ModelError, PartValidationError

__all__ = ["connect"]


# A key or a client is a vendor's: only without them may the model be a local one.
@overload
def connect(name: str, *, api_key: str, **options: Any) -> ProviderModel: ...
@overload
def connect(name: str, *, client: ProviderClient, **options: Any) -> ProviderModel: ...
@overload
def connect(
    name: str,
    *,
    api_key: None = None,
    client: None = None,
    base_url: str | None = None,
    headers: Mapping[str, str] | None = None,
    timeouts: Timeouts | None = None,
    settings: Mapping[str, str] | None = None,
    cache_config: CacheConfig | None = None,
    error_mapper: ErrorMapper | None = None,
    environment: Environment | None = None,
    provider_raw: bool = False,
    **config: Any,
) -> ProviderModel | LocalModel: ...
def connect(
    name: str,
    *,
    api_key: str | None = None,
    base_url: str | None = None,
    client: ProviderClient | None = None,
    headers: Mapping[str, str] | None = None,
    timeouts: Timeouts | None = None,
    settings: Mapping[str, str] | None = None,
    cache_config: CacheConfig | None = None,
    error_mapper: ErrorMapper | None = None,
    environment: Environment | None = None,
    provider_raw: bool = False,
    **config: Any,
) -> ProviderModel | LocalModel:
    """The model of this name, ``vendor:model`` or ``vendor/model``; no network is touched.

    ``local`` is no vendor: its model is one that ``bartack models`` lists or the path of a .gguf file, and without one it
    is that of ``BARTACK_LOCAL_MODEL`` or the default. It takes `environment` and `config` of what follows.

    `settings` are a cloud's ``region``, ``project`` or ``location`` where the environment does not say
    them. `config` are fields of `ModelConfig`; other names are the provider's own settings.

    Raises `ModelError` with the code `authentication`, naming the variables, where a key is missing; and
    `PartValidationError` with the code `invalid_config` for an unknown vendor or a setting that cannot be.
    """
    if name == "local" or name.startswith(("local:", "local/")):
        return LocalModel(name[len("local:") :] or None, environment=environment, **config)
    vendor, model_id = _split(name)
    place = _place(vendor, base_url, settings or {})
    return ProviderModel(
        client or _http_client(timeouts),
        updated_config(ModelConfig(model_id), config),
        cache_config,
        error_mapper,
        vendor=replace(vendor, path=place.path),
        base_url=place.base_url,
        credentials=_credentials(vendor, api_key, place.settings),
        headers=headers,
        environment=environment,
        provider_raw=provider_raw,
    )


def _split(name: str) -> tuple[Vendor, str]:
    """``openrouter:anthropic/claude`` and ``openrouter/anthropic/claude`` name the same. A colon may be the model's."""
    for separator in (":", "/"):
        vendor, found, model_id = name.partition(separator)
        if found and vendor.count("/") == 0 and model_id:
            return vendor_named(vendor), model_id
    raise PartValidationError(
        f"{name!r} is not vendor:model (vendors: {', '.join(sorted(VENDORS))})",
        path="$.name",
        code=ErrorCode.INVALID_CONFIG,
    )


# -- where the vendor is


class _Place(NamedTuple):
    base_url: str
    path: str
    settings: dict[str, str]


def _place(vendor: Vendor, base_url: str | None, given: Mapping[str, str]) -> _Place:
    names = (f"{_env_name(vendor.name)}_BASE_URL", *vendor.base_url_names)
    said = base_url or _from_environment(names)
    if said is None and vendor.base_url is None:
        raise _lacks(vendor, "a base_url", names)
    url, settings = said or vendor.base_url or "", {}
    for name, variables in vendor.settings.items():
        if f"{{{name}}}" in vendor.path or (said is None and f"{{{name}}}" in url):
            value = given.get(name) or _from_environment(variables)
            if value is None:
                raise _lacks(vendor, f"its setting {name!r}", variables)
            settings[name] = value
    path = vendor.path
    for name, value in settings.items():
        url, path = url.replace(f"{{{name}}}", value), path.replace(f"{{{name}}}", value)
    if "://" not in url:  # OLLAMA_HOST is a host and a port
        url = f"http://{url}"
    return _Place(url.replace("//global-aiplatform", "//aiplatform"), path, settings)  # "global" is no region


def _env_name(vendor: str) -> str:
    return "".join(letter if letter.isalnum() else "_" for letter in vendor.upper())


def _from_environment(names: Iterable[str]) -> str | None:
    """The first of these variables that is set; a name that begins with = is a value by itself."""
    for name in names:
        value = name[1:] if name.startswith("=") else os.environ.get(name, "").strip()
        if value:
            return value
    return None


def _lacks(vendor: Vendor, what: str, names: Iterable[str]) -> PartValidationError:
    return PartValidationError(
        f"{vendor.name} needs {what}: pass it, or set {' or '.join(names)}", code=ErrorCode.INVALID_CONFIG
    )


# -- who asks


def _credentials(vendor: Vendor, api_key: str | None, settings: Mapping[str, str]) -> Credentials:
    key = (api_key or "").strip() or _from_environment(vendor.key_names)
    if key is not None:
        if not key.isascii() or not key.isprintable():
            raise ModelError(
                f"the key of {vendor.name} holds characters that no key has", code=ErrorCode.AUTHENTICATION
            )
        return HeaderKey("bearer" if vendor.auth in ("aws", "google") else vendor.auth, key)
    if vendor.auth == "aws":
        return AwsSignature(settings.get("region") or _from_environment(AWS_REGION) or "")
    if vendor.auth == "google":
        return GoogleToken()
    if vendor.needs_key and vendor.auth != "none":
        raise ModelError(
            f"{vendor.name} needs a key: pass api_key, or set {' or '.join(vendor.key_names)}",
            code=ErrorCode.MISSING_CREDENTIALS,
        )
    return NoCredentials()


def _http_client(timeouts: Timeouts | None) -> ProviderClient:
    from bartack.models.http import HttpClient  # noqa: PLC0415 - an extra, and not needed with another client

    return HttpClient(timeouts=timeouts)
