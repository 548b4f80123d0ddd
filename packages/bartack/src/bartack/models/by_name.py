"""`connect`: a name such as ``anthropic:claude-sonnet-4-6``, the environment and a few settings -> a model.

The environment is read here and nowhere else: the vendor's key (``ANTHROPIC_API_KEY``), its base URL
(``ANTHROPIC_BASE_URL``) and, for clouds, region, project and location. Arguments override the environment.
"""

import os
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, overload

from msgspec.structs import replace

from bartack.environment import Environment
from bartack.models.auth import AwsSignature, Credentials, GoogleToken, HeaderKey, NoCredentials
from bartack.models.client import ProviderClient, Timeouts
from bartack.models.local import LocalModel
from bartack.models.model import updated_config
from bartack.models.provider import CallLimit, ErrorMapper, ProviderModel
from bartack.models.vendors import AWS_REGION, VENDORS, Vendor, is_vendor, vendor_named
from bartack.models.weights import known_models
from bartack.nouns.config import CacheConfig, ModelConfig
from bartack.nouns.errors import ConfigError, ErrorCode, ModelError

__all__ = ["DefaultModel", "connect", "default_model"]

# The vendor that a model without one most likely belongs to, by the beginning of its name. gpt-oss comes before gpt.
_FAMILIES = {
    family: vendor
    for vendor, families in {
        "ollama": "gpt-oss llama qwen gemma phi",
        "anthropic": "claude",
        "openai": "gpt chatgpt o1 o3 o4",
        "google": "gemini",
        "mistral": "mistral codestral devstral magistral",
        "xai": "grok",
        "deepseek": "deepseek",
        "zai": "glm",
        "cohere": "command",
        "perplexity": "sonar",
    }.items()
    for family in families.split()
}
_FAMILY = re.compile(f"({'|'.join(_FAMILIES)})(?![a-z])")
_LOCAL_FILE = re.compile(r"hf:.*|.*\.gguf")
# Settings become part of the URL and must not change its host. A project may be "example.com:name":
# docs.cloud.google.com/resource-manager/docs/creating-managing-projects
_IN_HOST = re.compile(r"[A-Za-z0-9-]+")
_IN_PATH = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]*")


# With a key, a client or an address, the model is a vendor's; only without them can it be local.
@overload
def connect(name: str, *, api_key: str, **options: Any) -> ProviderModel: ...
@overload
def connect(name: str, *, client: ProviderClient, **options: Any) -> ProviderModel: ...
@overload
def connect(name: str, *, base_url: str, **options: Any) -> ProviderModel: ...
@overload
def connect(
    name: str,
    *,
    api_key: None = None,
    client: None = None,
    base_url: None = None,
    headers: Mapping[str, str] | None = None,
    timeouts: Timeouts | None = None,
    settings: Mapping[str, str] | None = None,
    cache_config: CacheConfig | None = None,
    error_mapper: ErrorMapper | None = None,
    environment: Environment | None = None,
    provider_raw: bool = False,
    limit: CallLimit | int | None = None,
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
    limit: CallLimit | int | None = None,
    **config: Any,
) -> ProviderModel | LocalModel:
    """The model with this name, written ``vendor:model`` or ``vendor/model``. Does not use the network.

    ``local`` is a model in this process; ``local:NAME`` is one from ``bartack models list``, or the path of a .gguf
    file. Of the arguments below, a local model takes `environment` and `config`.

    Args:
        settings: A cloud's ``region``, ``project`` or ``location``.
        provider_raw: Attach the received bytes to the deltas, for debugging.
        limit: How many calls of this model may be in progress at once, or a `CallLimit` that several models share.
        config: Fields of `ModelConfig`; other names are sent to the provider as its own settings.

    Raises:
        ModelError: The key is missing (code `missing_credentials`) or invalid (`authentication`).
        PartValidationError: The vendor is unknown or a setting is invalid (code `invalid_config`).
    """
    if name == "local" or name.startswith(("local:", "local/")):
        return LocalModel(name[len("local:") :] or None, environment=environment, **config)
    vendor, model_id = _split(name)
    url, path, used = _endpoint(vendor, base_url, settings or {})
    if client is None:
        from bartack.models.http import HttpClient  # noqa: PLC0415 - an extra, and not needed with another client

        client = HttpClient(timeouts=timeouts)
    return ProviderModel(
        client,
        updated_config(ModelConfig(model_id), config),
        cache_config,
        error_mapper,
        vendor=replace(vendor, path=path),
        base_url=url,
        credentials=_credentials(vendor, api_key, used),
        headers=headers,
        environment=environment,
        provider_raw=provider_raw,
        limit=CallLimit(limit) if isinstance(limit, int) else limit,
    )


class DefaultModel(NamedTuple):
    """A name for `connect`, and why it was chosen."""

    name: str
    reason: str


def default_model() -> DefaultModel:
    """The model to use when none is named: that of the first vendor whose key is set, otherwise the local model."""
    for vendor in VENDORS.values():
        for variable in vendor.key_names if vendor.default_model else ():
            if os.environ.get(variable, "").strip():
                return DefaultModel(f"{vendor.name}:{vendor.default_model}", f"{variable} is set")
    return DefaultModel("local", "no API key is set")


def _split(name: str) -> tuple[Vendor, str]:
    """``openrouter:anthropic/claude:free`` and ``openrouter/anthropic/claude:free`` are the same model."""
    likely = likely_name(name)
    for separator in (":", "/"):
        vendor, separated, model_id = name.partition(separator)
        if separated and vendor.count("/") == 0 and model_id and (likely is None or is_vendor(vendor)):
            return vendor_named(vendor), model_id
    hint = f"Known vendors: {', '.join(sorted(VENDORS))}." if likely is None else f"Did you mean {likely}?"
    raise ConfigError(f"Invalid model name {name!r}: expected vendor:model. {hint}", path="$.name")


def likely_name(model: str) -> str | None:
    """The likely full name of a model that was given without its vendor, or of a vendor's model; None if nothing is
    likely."""
    if model in known_models() or _LOCAL_FILE.fullmatch(model):
        return f"local:{model}"
    vendor = VENDORS.get(model.rstrip(":/"))
    if vendor is not None:
        return f"{vendor.name}:{vendor.default_model or 'MODEL'}"
    match = _FAMILY.match(model.lower())
    return None if match is None else f"{_FAMILIES[match[0]]}:{model}"


def _endpoint(vendor: Vendor, base_url: str | None, values: Mapping[str, str]) -> tuple[str, str, dict[str, str]]:
    """The base URL and the path, and the settings that were inserted into them."""
    names = (re.sub(r"\W", "_", vendor.name.upper()) + "_BASE_URL", *vendor.base_url_names)
    custom = base_url or _from_environment(names)
    if custom is None and vendor.base_url is None:
        raise _missing_setting_error(vendor, "base_url", names)
    url, path, settings = custom or vendor.base_url or "", vendor.path, {}
    for name, variables in vendor.settings.items():
        if f"{{{name}}}" in vendor.path or (custom is None and f"{{{name}}}" in url):
            value = values.get(name) or _from_environment(variables)
            if value is None:
                raise _missing_setting_error(vendor, name, variables)
            allowed = _IN_HOST if f"{{{name}}}" in (vendor.base_url or "") else _IN_PATH
            if not allowed.fullmatch(value):
                raise ConfigError(
                    f"Invalid {name} {value[:80]!r} for {vendor.name}: it contains characters that change the URL.",
                    path=f"$.settings.{name}",
                )
            settings[name] = value
            url, path = url.replace(f"{{{name}}}", value), path.replace(f"{{{name}}}", value)
    if "://" not in url:  # OLLAMA_HOST is a host and a port
        url = f"http://{url}"
    # The host for the location "global" has no prefix: recorded in gemini-generate-requests.
    return url.replace("//global-aiplatform", "//aiplatform"), path, settings


def _from_environment(names: Iterable[str]) -> str | None:
    """The value of the first variable that is set; a name that starts with = is a default value."""
    for name in names:
        value = name[1:] if name.startswith("=") else os.environ.get(name, "").strip()
        if value:
            return value
    return None


def _missing_setting_error(vendor: Vendor, name: str, variables: Iterable[str]) -> ConfigError:
    return ConfigError(f"The {name} for {vendor.name} is not set. Pass it, or set {' or '.join(variables)}.")


def _credentials(vendor: Vendor, api_key: str | None, settings: Mapping[str, str]) -> Credentials:
    argument = (api_key or "").strip()
    key = argument or _from_environment(vendor.key_names)
    if key is not None:
        if not key.isascii() or not key.isprintable():
            check = "" if argument else f" Check {' or '.join(vendor.key_names)}."
            raise ConfigError(f"The API key for {vendor.name} contains invalid characters.{check}", path="$.api_key")
        return HeaderKey("bearer" if vendor.auth in ("aws", "google") else vendor.auth, key)
    if vendor.auth == "aws":
        return AwsSignature(settings.get("region") or _from_environment(AWS_REGION) or "")
    if vendor.auth == "google":
        return GoogleToken()
    if vendor.needs_key and vendor.auth != "none":
        first, *alternatives = vendor.key_names
        names = f"{first} (or {' or '.join(alternatives)})" if alternatives else first
        raise ModelError(f"{names} is not set.", code=ErrorCode.MISSING_CREDENTIALS)
    return NoCredentials()
