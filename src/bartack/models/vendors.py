"""Vendors as rows of data: where a vendor is, which wire format it speaks, and how it is told who asks (D-2.6).

A base address is what the vendor's own client calls one, so that ``OPENAI_BASE_URL`` and its kin mean the same here. It
and the path may hold ``{model}`` and the names of `settings`, which come from the environment or from the caller.
"""

from collections.abc import Mapping

from msgspec import Struct

from bartack.formats.framing import FramingName
from bartack.models.auth import AuthStyle
from bartack.nouns.errors import ErrorCode, PartValidationError

__all__ = ["AWS_REGION", "VENDORS", "Vendor", "vendor_named"]


class Vendor(Struct, frozen=True, kw_only=True):
    """One way to reach one vendor."""

    name: str
    format: str
    base_url: str | None = None  # None: the caller has to say it
    path: str
    auth: AuthStyle = "bearer"
    key_names: tuple[str, ...] = ()  # environment variables, first come first served
    needs_key: bool = True
    base_url_names: tuple[str, ...] = ()  # more environment variables than <NAME>_BASE_URL
    settings: Mapping[str, tuple[str, ...]] = {}  # placeholder -> environment variables; one starting with = is a value
    headers: Mapping[str, str] = {}
    body: Mapping[str, str] = {}  # set in every request
    body_without: tuple[str, ...] = ()  # keys that this vendor takes elsewhere, in the address for example
    provider: str = ""  # whose continuation data this is; the vendor's name where nothing is said
    framing: FramingName | None = None
    prices: str | None = None  # the vendor's name in genai-prices

    def __post_init__(self) -> None:
        if not self.name or not self.path.startswith("/"):
            raise PartValidationError(
                "a vendor has a name, and its path begins with /", path="$.path", code=ErrorCode.INVALID_CONFIG
            )


def _chat(name: str, base_url: str | None, key: str, *, prices: str | None = None, needs_key: bool = True) -> Vendor:
    """A vendor that speaks OpenAI's chat format at the usual place."""
    return Vendor(
        name=name,
        format="openai-chat",
        base_url=base_url,
        path="/chat/completions",
        key_names=(key,),
        needs_key=needs_key,
        prices=prices,
    )


AWS_REGION = ("AWS_REGION", "AWS_DEFAULT_REGION", "=us-east-1")
_GOOGLE_PLACE = {
    "project": ("GOOGLE_CLOUD_PROJECT", "GCP_PROJECT"),
    "location": ("GOOGLE_CLOUD_LOCATION", "GOOGLE_CLOUD_REGION", "=global"),
}
_BEDROCK_URL = "https://bedrock-runtime.{region}.amazonaws.com"
_VERTEX_URL = "https://{location}-aiplatform.googleapis.com"
_VERTEX_PATH = "/v1/projects/{project}/locations/{location}/publishers/"
_GEMINI_URL = "https://generativelanguage.googleapis.com"
_GEMINI_KEYS = ("GEMINI_API_KEY", "GOOGLE_API_KEY")
_GEMINI_URL_NAMES = ("GEMINI_BASE_URL", "GOOGLE_GEMINI_BASE_URL")

_ROWS = (
    Vendor(
        name="anthropic",
        format="anthropic-messages",
        base_url="https://api.anthropic.com",
        path="/v1/messages",
        auth="x-api-key",
        key_names=("ANTHROPIC_API_KEY",),
        headers={"anthropic-version": "2023-06-01"},
        prices="anthropic",
    ),
    Vendor(
        name="openai",
        format="openai-responses",
        base_url="https://api.openai.com/v1",
        path="/responses",
        key_names=("OPENAI_API_KEY",),
        prices="openai",
    ),
    Vendor(
        name="openai-chat",
        format="openai-chat",
        base_url="https://api.openai.com/v1",
        path="/chat/completions",
        key_names=("OPENAI_API_KEY",),
        base_url_names=("OPENAI_BASE_URL",),
        prices="openai",
    ),
    Vendor(
        name="azure",
        format="openai-responses",
        path="/openai/v1/responses",
        auth="api-key",
        key_names=("AZURE_OPENAI_API_KEY",),
        base_url_names=("AZURE_OPENAI_ENDPOINT",),
        prices="azure",
    ),
    Vendor(
        name="azure-chat",
        format="openai-chat",
        path="/openai/v1/chat/completions",
        provider="azure-openai",
        auth="api-key",
        key_names=("AZURE_OPENAI_API_KEY",),
        base_url_names=("AZURE_OPENAI_ENDPOINT",),
        prices="azure",
    ),
    Vendor(
        name="google",
        format="gemini-generate",
        base_url=_GEMINI_URL,
        path="/v1beta/models/{model}:streamGenerateContent?alt=sse",
        auth="x-goog-api-key",
        key_names=_GEMINI_KEYS,
        base_url_names=_GEMINI_URL_NAMES,
        prices="google",
    ),
    Vendor(
        name="gemini-interactions",
        format="gemini-interactions",
        base_url=_GEMINI_URL,
        path="/v1beta/interactions",
        auth="x-goog-api-key",
        key_names=_GEMINI_KEYS,
        base_url_names=_GEMINI_URL_NAMES,
        prices="google",
    ),
    Vendor(
        name="vertex",
        format="gemini-generate",
        base_url=_VERTEX_URL,
        path=_VERTEX_PATH + "google/models/{model}:streamGenerateContent?alt=sse",
        auth="google",
        settings=_GOOGLE_PLACE,
        prices="google",
    ),
    Vendor(
        name="vertex-anthropic",
        format="anthropic-messages",
        base_url=_VERTEX_URL,
        path=_VERTEX_PATH + "anthropic/models/{model}:streamRawPredict",
        auth="google",
        settings=_GOOGLE_PLACE,
        body={"anthropic_version": "vertex-2023-10-16"},
        body_without=("model",),
        prices="google",
    ),
    Vendor(
        name="bedrock",
        format="bedrock-converse",
        base_url=_BEDROCK_URL,
        path="/model/{model}/converse-stream",
        auth="aws",
        key_names=("AWS_BEARER_TOKEN_BEDROCK",),
        settings={"region": AWS_REGION},
        body_without=("modelId",),
        prices="aws",
    ),
    Vendor(
        name="bedrock-invoke",
        format="bedrock-invoke",
        base_url=_BEDROCK_URL,
        path="/model/{model}/invoke-with-response-stream",
        auth="aws",
        key_names=("AWS_BEARER_TOKEN_BEDROCK",),
        base_url_names=("BEDROCK_BASE_URL",),
        settings={"region": AWS_REGION},
        body_without=("model", "modelId", "stream"),
        prices="aws",
    ),
    Vendor(
        name="cohere",
        format="cohere-v2",
        base_url="https://api.cohere.com",
        path="/v2/chat",
        key_names=("CO_API_KEY", "COHERE_API_KEY"),
        base_url_names=("CO_API_URL",),
        prices="cohere",
    ),
    Vendor(
        name="ollama",
        format="ollama-chat",
        base_url="http://127.0.0.1:11434",
        path="/api/chat",
        key_names=("OLLAMA_API_KEY",),
        needs_key=False,
        base_url_names=("OLLAMA_HOST",),
    ),
    _chat("mistral", "https://api.mistral.ai/v1", "MISTRAL_API_KEY", prices="mistral"),
    _chat("groq", "https://api.groq.com/openai/v1", "GROQ_API_KEY", prices="groq"),
    _chat("xai", "https://api.x.ai/v1", "XAI_API_KEY", prices="x-ai"),
    Vendor(
        name="xai-responses",
        format="openai-responses",
        base_url="https://api.x.ai/v1",
        path="/responses",
        key_names=("XAI_API_KEY",),
        base_url_names=("XAI_BASE_URL",),
        prices="x-ai",
    ),
    _chat("deepseek", "https://api.deepseek.com", "DEEPSEEK_API_KEY", prices="deepseek"),
    _chat("zai", "https://api.z.ai/api/paas/v4", "ZAI_API_KEY", prices="zai"),
    _chat("openrouter", "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY", prices="openrouter"),
    _chat("perplexity", "https://api.perplexity.ai", "PERPLEXITY_API_KEY", prices="perplexity"),
    _chat("cerebras", "https://api.cerebras.ai/v1", "CEREBRAS_API_KEY", prices="cerebras"),
    _chat("together", "https://api.together.xyz/v1", "TOGETHER_API_KEY", prices="together"),
    _chat("fireworks", "https://api.fireworks.ai/inference/v1", "FIREWORKS_API_KEY", prices="fireworks"),
    _chat("huggingface", "https://router.huggingface.co/v1", "HF_TOKEN"),
    _chat("llama.cpp", "http://127.0.0.1:8080/v1", "LLAMA_API_KEY", needs_key=False),
    _chat("vllm", "http://127.0.0.1:8000/v1", "VLLM_API_KEY", needs_key=False),
    _chat("lmstudio", "http://127.0.0.1:1234/v1", "LM_API_TOKEN", needs_key=False),
    _chat("openai-compatible", None, "OPENAI_COMPATIBLE_API_KEY", needs_key=False),
)

VENDORS: dict[str, Vendor] = {row.name: row for row in _ROWS}

_OTHER_NAMES = {
    "gemini": "google",
    "google-vertex": "vertex",
    "aws": "bedrock",
    "x-ai": "xai",
    "z-ai": "zai",
    "llamacpp": "llama.cpp",
    "openai-responses": "openai",
}


def vendor_named(name: str) -> Vendor:
    """The row of this name; raises `PartValidationError` that lists the names there are."""
    row = VENDORS.get(_OTHER_NAMES.get(name, name))
    if row is None:
        raise PartValidationError(
            f"{name!r} is not a vendor ({', '.join(sorted(VENDORS))})", path="$.vendor", code=ErrorCode.INVALID_CONFIG
        )
    return row
