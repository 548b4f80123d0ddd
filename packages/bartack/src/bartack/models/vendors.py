"""Vendors as rows of data: where a vendor's API is, which wire format it uses, and how requests authenticate (D-2.6).

Base URLs are those of the vendors' own clients, so that ``OPENAI_BASE_URL`` and similar variables mean the same here. A
base URL and a path may contain ``{model}`` and the names of `settings`, which come from the environment or the caller.

Each row names its source: "recorded" for requests to this address in the recordings, or else the vendor's page.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from bartack.formats.framing import FramingName
from bartack.models.auth import AuthStyle
from bartack.nouns.errors import ConfigError, nearest_name

__all__ = ["AWS_REGION", "VENDORS", "Vendor", "vendor_named"]


class Vendor(Struct, frozen=True, kw_only=True):
    """One way to reach one vendor."""

    name: str
    format: str
    base_url: str | None = None  # None: the caller has to specify it
    path: str
    auth: AuthStyle = "bearer"
    key_names: tuple[str, ...] = ()  # environment variables for the key; the first one that is set is used
    needs_key: bool = True
    base_url_names: tuple[str, ...] = ()  # environment variables for the base URL, besides <NAME>_BASE_URL
    settings: Mapping[str, tuple[str, ...]] = {}  # placeholder -> environment variables; "=value" is a default
    headers: Mapping[str, str] = {}
    body: Mapping[str, str] = {}  # set in every request body
    body_without: tuple[str, ...] = ()  # keys that do not belong in the body, for example because the path has them
    provider: str = ""  # the issuer of continuation data, if not `name`
    framing: FramingName | None = None
    prices: str | None = None  # the vendor's name in genai-prices
    default_model: str | None = None  # used when no model is named and this vendor's key is set; see `default_model`

    def __post_init__(self) -> None:
        if not self.name or not self.path.startswith("/"):
            raise ConfigError(
                f"A vendor needs a name and a path that starts with /, got {self.name!r} and {self.path!r}.",
                path="$.path",
            )


def _row(name: str, format: str, base_url: str | None, path: str, *key_names: str, **fields: Any) -> Vendor:
    return Vendor(name=name, format=format, base_url=base_url, path=path, key_names=key_names, **fields)


def _chat(
    name: str, base_url: str | None, key_name: str, prices: str | None, default_model: str | None = None, **fields: Any
) -> Vendor:
    fields |= {"prices": prices, "default_model": default_model}
    return _row(name, "openai-chat", base_url, "/chat/completions", key_name, **fields)


def _responses(name: str, base_url: str | None, key_name: str, prices: str, **fields: Any) -> Vendor:
    return _row(name, "openai-responses", base_url, "/responses", key_name, prices=prices, **fields)


AWS_REGION = ("AWS_REGION", "AWS_DEFAULT_REGION", "=us-east-1")
_OPENAI = "https://api.openai.com/v1"
_XAI = "https://api.x.ai/v1"
_GEMINI = "https://generativelanguage.googleapis.com"
_GEMINI_KEYS = ("GEMINI_API_KEY", "GOOGLE_API_KEY")
_GEMINI_URLS = ("GEMINI_BASE_URL", "GOOGLE_GEMINI_BASE_URL")
_GEMINI_OPTIONS: dict[str, Any] = {"auth": "x-goog-api-key", "base_url_names": _GEMINI_URLS, "prices": "google"}
_VERTEX = "https://{location}-aiplatform.googleapis.com"
_VERTEX_PATH = "/v1/projects/{project}/locations/{location}/publishers/"
_VERTEX_SETTINGS = {
    "project": ("GOOGLE_CLOUD_PROJECT", "GCP_PROJECT"),
    "location": ("GOOGLE_CLOUD_LOCATION", "GOOGLE_CLOUD_REGION", "=global"),
}
_VERTEX_OPTIONS: dict[str, Any] = {"auth": "google", "settings": _VERTEX_SETTINGS, "prices": "google"}
_BEDROCK = "https://bedrock-runtime.{region}.amazonaws.com"
_BEDROCK_KEY = "AWS_BEARER_TOKEN_BEDROCK"
_BEDROCK_OPTIONS: dict[str, Any] = {"auth": "aws", "settings": {"region": AWS_REGION}, "prices": "aws"}
_AZURE_KEY = "AZURE_OPENAI_API_KEY"
_AZURE_OPTIONS: dict[str, Any] = {"auth": "api-key", "base_url_names": ("AZURE_OPENAI_ENDPOINT",), "prices": "azure"}

# Ordered by the priority of their default models. Those are capable models of the middle class; such a list ages.
_ROWS = (
    _row(  # recorded
        "anthropic",
        "anthropic-messages",
        "https://api.anthropic.com",
        "/v1/messages",
        "ANTHROPIC_API_KEY",
        auth="x-api-key",
        headers={"anthropic-version": "2023-06-01"},
        prices="anthropic",
        default_model="claude-sonnet-4-6",
    ),
    _responses("openai", _OPENAI, "OPENAI_API_KEY", "openai", default_model="gpt-5.5"),  # recorded
    _chat("openai-chat", _OPENAI, "OPENAI_API_KEY", "openai", base_url_names=("OPENAI_BASE_URL",)),  # recorded
    _row(  # recorded
        "google",
        "gemini-generate",
        _GEMINI,
        "/v1beta/models/{model}:streamGenerateContent?alt=sse",
        *_GEMINI_KEYS,
        **_GEMINI_OPTIONS,
        default_model="gemini-3.5-flash",
    ),
    _row(  # recorded
        "gemini-interactions", "gemini-interactions", _GEMINI, "/v1beta/interactions", *_GEMINI_KEYS, **_GEMINI_OPTIONS
    ),
    _chat("mistral", "https://api.mistral.ai/v1", "MISTRAL_API_KEY", "mistral", "mistral-medium-latest"),  # recorded
    _chat("xai", _XAI, "XAI_API_KEY", "x-ai", "grok-4.3"),  # recorded
    _responses("xai-responses", _XAI, "XAI_API_KEY", "x-ai", base_url_names=("XAI_BASE_URL",)),  # not verified
    _chat("deepseek", "https://api.deepseek.com", "DEEPSEEK_API_KEY", "deepseek", "deepseek-v4-flash"),  # recorded
    _chat("groq", "https://api.groq.com/openai/v1", "GROQ_API_KEY", "groq", "openai/gpt-oss-120b"),  # recorded
    # recorded
    _chat(
        "openrouter", "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY", "openrouter", "anthropic/claude-sonnet-4.6"
    ),
    _row(  # recorded; the names of the variables: docs.cohere.com/docs/create-client
        "cohere",
        "cohere-v2",
        "https://api.cohere.com",
        "/v2/chat",
        *("CO_API_KEY", "COHERE_API_KEY"),
        base_url_names=("CO_API_URL",),
        prices="cohere",
        default_model="command-a-03-2025",
    ),
    _chat("cerebras", "https://api.cerebras.ai/v1", "CEREBRAS_API_KEY", "cerebras", "gpt-oss-120b"),  # recorded
    # docs.perplexity.ai/docs/sonar/openai-compatibility
    _chat("perplexity", "https://api.perplexity.ai", "PERPLEXITY_API_KEY", "perplexity", "sonar-pro"),
    _chat("zai", "https://api.z.ai/api/paas/v4", "ZAI_API_KEY", "zai", "glm-4.6"),  # recorded
    _chat("together", "https://api.together.xyz/v1", "TOGETHER_API_KEY", "together", "Qwen/Qwen3.7-Plus"),  # recorded
    _chat(  # not verified
        "fireworks",
        "https://api.fireworks.ai/inference/v1",
        "FIREWORKS_API_KEY",
        "fireworks",
        "accounts/fireworks/models/gpt-oss-120b",
    ),
    # vercel.com/docs/ai-gateway/sdks-and-apis/openai-chat-completions
    _chat("vercel", "https://ai-gateway.vercel.sh/v1", "AI_GATEWAY_API_KEY", None),
    # huggingface.co/docs/inference-providers
    _chat("huggingface", "https://router.huggingface.co/v1", "HF_TOKEN", None, "openai/gpt-oss-120b"),
    # The v1 API takes the deployment as `model` and needs no api-version:
    # learn.microsoft.com/azure/foundry/openai/api-version-lifecycle
    _row("azure", "openai-responses", None, "/openai/v1/responses", _AZURE_KEY, **_AZURE_OPTIONS),
    _row(
        "azure-chat",
        "openai-chat",
        None,
        "/openai/v1/chat/completions",
        _AZURE_KEY,
        provider="azure-openai",
        **_AZURE_OPTIONS,
    ),
    _row(  # recorded
        "vertex",
        "gemini-generate",
        _VERTEX,
        f"{_VERTEX_PATH}google/models/{{model}}:streamGenerateContent?alt=sse",
        **_VERTEX_OPTIONS,
    ),
    _row(  # the path names the model and the body the version: lib/vertex/_client.py of anthropic-sdk-python
        "vertex-anthropic",
        "anthropic-messages",
        _VERTEX,
        f"{_VERTEX_PATH}anthropic/models/{{model}}:streamRawPredict",
        body={"anthropic_version": "vertex-2023-10-16"},
        body_without=("model",),
        **_VERTEX_OPTIONS,
    ),
    _row(  # recorded
        "bedrock",
        "bedrock-converse",
        _BEDROCK,
        "/model/{model}/converse-stream",
        _BEDROCK_KEY,
        body_without=("modelId",),
        **_BEDROCK_OPTIONS,
    ),
    _row(  # recorded
        "bedrock-invoke",
        "bedrock-invoke",
        _BEDROCK,
        "/model/{model}/invoke-with-response-stream",
        _BEDROCK_KEY,
        base_url_names=("BEDROCK_BASE_URL",),
        body_without=("model", "modelId", "stream"),
        **_BEDROCK_OPTIONS,
    ),
    _row(  # recorded; OLLAMA_HOST is a host and a port, as for the ollama command
        "ollama",
        "ollama-chat",
        "http://127.0.0.1:11434",
        "/api/chat",
        "OLLAMA_API_KEY",
        needs_key=False,
        base_url_names=("OLLAMA_HOST",),
    ),
    _chat("llama.cpp", "http://127.0.0.1:8080/v1", "LLAMA_API_KEY", None, needs_key=False),  # its default port
    _chat("vllm", "http://127.0.0.1:8000/v1", "VLLM_API_KEY", None, needs_key=False),  # its default port
    # lmstudio.ai/docs/developer/openai-compat and lmstudio.ai/docs/python/getting-started/authentication
    _chat("lmstudio", "http://127.0.0.1:1234/v1", "LM_API_TOKEN", None, needs_key=False),
    _chat("openai-compatible", None, "OPENAI_COMPATIBLE_API_KEY", None, needs_key=False),
)

VENDORS: dict[str, Vendor] = {row.name: row for row in _ROWS}

_ALIASES = {"gemini": "google", "google-vertex": "vertex", "aws": "bedrock", "openai-responses": "openai"}
_ALIASES |= {"x-ai": "xai", "z-ai": "zai", "llamacpp": "llama.cpp"}


def is_vendor(name: str) -> bool:
    """Whether there is a row with this name."""
    return _ALIASES.get(name, name) in VENDORS


def vendor_named(name: str) -> Vendor:
    """The row with this name. Raises `PartValidationError` that lists the known names."""
    row = VENDORS.get(_ALIASES.get(name, name))
    if row is None:
        nearest = nearest_name(name, VENDORS)
        hint = f"Known vendors: {', '.join(sorted(VENDORS))}." if nearest is None else f"Did you mean {nearest!r}?"
        raise ConfigError(f"Unknown vendor {name!r}. {hint}", path="$.vendor")
    return row
