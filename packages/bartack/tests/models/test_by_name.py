"""``bartack.connect("vendor:model")``: names, keys and URLs."""

import json
from pathlib import Path
from typing import Any

import pytest

from bartack.formats import FORMATS
from bartack.models import VENDORS, HttpRequest, ProviderModel, Vendor, connect, vendor_named
from bartack.models.http import HttpClient
from bartack.nouns.deltas import Failed, Start
from bartack.nouns.errors import BartackError, ErrorCode, ModelError, PartValidationError
from bartack.nouns.messages import user
from tests.models.doubles import BytesClient, read

KEYED = [row for row in VENDORS.values() if row.needs_key and row.auth not in ("aws", "google")]


@pytest.fixture(autouse=True)
def _empty_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {name for row in VENDORS.values() for name in (*row.key_names, *row.base_url_names)}
    names |= {name for row in VENDORS.values() for variables in row.settings.values() for name in variables}
    for name in (*names, "OPENAI_BASE_URL", "ANTHROPIC_BASE_URL", "OPENAI_COMPATIBLE_BASE_URL", "LLAMA_CPP_BASE_URL"):
        monkeypatch.delenv(name.lstrip("="), raising=False)


async def request_of(name: str, **options: Any) -> HttpRequest:
    client = BytesClient()
    options.setdefault("api_key", "a-key")
    await read(connect(name, client=client, **options).stream([user("Hello")]))
    return client.requests[0]


@pytest.mark.parametrize(
    ("name", "url"),
    [
        ("anthropic:claude-x", "https://api.anthropic.com/v1/messages"),
        ("openai:gpt-x", "https://api.openai.com/v1/responses"),
        ("openai-chat:gpt-x", "https://api.openai.com/v1/chat/completions"),
        (
            "google:gemini-x",
            "https://generativelanguage.googleapis.com/v1beta/models/gemini-x:streamGenerateContent?alt=sse",
        ),
        (
            "gemini:models/gemini-x",
            "https://generativelanguage.googleapis.com/v1beta/models/gemini-x:streamGenerateContent?alt=sse",
        ),
        ("gemini-interactions:gemini-x", "https://generativelanguage.googleapis.com/v1beta/interactions"),
        (
            "bedrock:us.anthropic.claude-x-v1:0",
            "https://bedrock-runtime.us-east-1.amazonaws.com/model/us.anthropic.claude-x-v1%3A0/converse-stream",
        ),
        (
            "bedrock-invoke:anthropic.claude-v2",
            "https://bedrock-runtime.us-east-1.amazonaws.com/model/anthropic.claude-v2/invoke-with-response-stream",
        ),
        ("cohere:command-x", "https://api.cohere.com/v2/chat"),
        ("ollama:llama3.2:3b", "http://127.0.0.1:11434/api/chat"),
        ("mistral:m", "https://api.mistral.ai/v1/chat/completions"),
        ("groq:m", "https://api.groq.com/openai/v1/chat/completions"),
        ("xai:m", "https://api.x.ai/v1/chat/completions"),
        ("deepseek:m", "https://api.deepseek.com/chat/completions"),
        ("zai:m", "https://api.z.ai/api/paas/v4/chat/completions"),
        ("openrouter:anthropic/claude-x", "https://openrouter.ai/api/v1/chat/completions"),
        ("perplexity:m", "https://api.perplexity.ai/chat/completions"),
        ("cerebras:m", "https://api.cerebras.ai/v1/chat/completions"),
        ("together:m", "https://api.together.xyz/v1/chat/completions"),
        ("fireworks:m", "https://api.fireworks.ai/inference/v1/chat/completions"),
        ("huggingface:org/m", "https://router.huggingface.co/v1/chat/completions"),
        ("vllm:m", "http://127.0.0.1:8000/v1/chat/completions"),
        ("llama.cpp:m", "http://127.0.0.1:8080/v1/chat/completions"),
        ("lmstudio:m", "http://127.0.0.1:1234/v1/chat/completions"),
    ],
)
async def test_each_vendor_has_its_documented_url(name: str, url: str) -> None:
    assert (await request_of(name)).url == url


async def test_cloud_settings_come_from_arguments_or_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PartValidationError, match="GOOGLE_CLOUD_PROJECT"):
        connect("vertex:gemini-x", api_key="token", client=BytesClient())
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "my-project")
    place = "v1/projects/my-project/locations"
    request = await request_of("vertex:gemini-x")
    assert request.url == (
        f"https://aiplatform.googleapis.com/{place}/global/publishers/google/models/gemini-x"
        ":streamGenerateContent?alt=sse"
    )
    request = await request_of("vertex-anthropic:claude-x@1", settings={"location": "europe-west1"})
    assert request.url == (
        f"https://europe-west1-aiplatform.googleapis.com/{place}/europe-west1/publishers/anthropic/models/claude-x%401"
        ":streamRawPredict"
    )
    body = json.loads(request.body)
    assert body["anthropic_version"] == "vertex-2023-10-16"
    assert "model" not in body
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    assert "bedrock-runtime.eu-central-1." in (await request_of("bedrock:m")).url


@pytest.mark.parametrize("value", ["evil.example/", "x@evil.example", "x#", "x?", "x\\", "x\r\ny", "x y", ".."])
@pytest.mark.parametrize(
    ("name", "setting", "variable"),
    [
        ("bedrock:m", "region", "AWS_REGION"),
        ("vertex:m", "location", "GOOGLE_CLOUD_LOCATION"),
        ("vertex:m", "project", "GOOGLE_CLOUD_PROJECT"),
    ],
)
def test_settings_cannot_change_the_host(
    name: str, setting: str, variable: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "my-project")
    with pytest.raises(PartValidationError, match=f"Invalid {setting}") as refused:
        connect(name, api_key="k", client=BytesClient(), settings={setting: value})
    assert refused.value.code is ErrorCode.INVALID_CONFIG
    assert refused.value.path == f"$.settings.{setting}"
    monkeypatch.setenv(variable, value)
    with pytest.raises(PartValidationError, match=f"Invalid {setting}"):
        connect(name, api_key="k", client=BytesClient())


async def test_a_project_may_belong_to_a_domain_and_a_region_may_not() -> None:
    request = await request_of("vertex:m", settings={"project": "example.com:name"})
    assert request.url.startswith("https://aiplatform.googleapis.com/v1/projects/example.com:name/locations/")
    with pytest.raises(PartValidationError, match="Invalid region"):
        connect("bedrock:m", api_key="k", client=BytesClient(), settings={"region": "evil.example:443"})


async def test_azure_requires_its_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PartValidationError, match="AZURE_OPENAI_ENDPOINT"):
        connect("azure:deployment", api_key="k", client=BytesClient())
    monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", "https://me.openai.azure.com/")
    request = await request_of("azure:deployment")
    assert request.url == "https://me.openai.azure.com/openai/v1/responses"
    assert request.headers["api-key"] == "a-key"
    assert (await request_of("azure-chat:d")).url == "https://me.openai.azure.com/openai/v1/chat/completions"


async def test_a_base_url_argument_overrides_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "https://proxy.example/v1/")
    assert (await request_of("openai:m")).url == "https://proxy.example/v1/responses"
    assert (await request_of("openai-chat:m")).url == "https://proxy.example/v1/chat/completions"
    assert (await request_of("openai:m", base_url="http://localhost:1/x")).url == "http://localhost:1/x/responses"
    monkeypatch.setenv("LLAMA_CPP_BASE_URL", "http://localhost:2/v1")
    assert (await request_of("llamacpp:m")).url == "http://localhost:2/v1/chat/completions"
    monkeypatch.setenv("OLLAMA_HOST", "10.0.0.1:11434")
    assert (await request_of("ollama:m")).url == "http://10.0.0.1:11434/api/chat"


async def test_a_compatible_server_requires_a_base_url_but_no_key() -> None:
    with pytest.raises(PartValidationError, match="OPENAI_COMPATIBLE_BASE_URL"):
        connect("openai-compatible:m")
    request = await request_of("openai-compatible:m", base_url="http://localhost:9/v1", api_key=None)
    assert "Authorization" not in request.headers
    with pytest.raises(PartValidationError, match="https://"):
        connect("openai-compatible:m", base_url="ftp://localhost", client=BytesClient())


@pytest.mark.parametrize(
    ("name", "header", "value"),
    [
        ("anthropic:m", "x-api-key", "a-key"),
        ("openai:m", "Authorization", "Bearer a-key"),
        ("google:m", "x-goog-api-key", "a-key"),
        ("bedrock:m", "Authorization", "Bearer a-key"),
    ],
)
async def test_each_vendor_gets_its_key_in_the_right_header(name: str, header: str, value: str) -> None:
    request = await request_of(name, api_key=" a-key\n")
    assert request.headers[header] == value
    assert "a-key" not in request.url
    assert request.secrets == ("a-key",)


@pytest.mark.parametrize("row", KEYED, ids=lambda row: row.name)
def test_a_missing_key_is_reported_before_any_request(row: Vendor) -> None:
    client = BytesClient()
    with pytest.raises(ModelError) as missing:
        connect(f"{row.name}:m", base_url="https://host.example", client=client)
    assert missing.value.code is ErrorCode.MISSING_CREDENTIALS
    assert not missing.value.retryable
    for name in row.key_names:
        assert name in missing.value.message
    assert client.requests == []


async def test_the_first_variable_that_is_set_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMINI_API_KEY", "")
    monkeypatch.setenv("GOOGLE_API_KEY", "from-google")
    assert (await request_of("google:m", api_key=None)).headers["x-goog-api-key"] == "from-google"
    monkeypatch.setenv("GEMINI_API_KEY", "from-gemini")
    assert (await request_of("google:m", api_key=None)).headers["x-goog-api-key"] == "from-gemini"


@pytest.mark.parametrize("key", ["sk-one\nsk-two", "sk-\x00", "sk-\N{EN DASH}", "sk-\x7f"])
def test_an_invalid_key_is_an_error_of_the_configuration_that_does_not_repeat_it(
    key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`authentication` means that the provider rejected a key; this one is never sent."""
    with pytest.raises(PartValidationError) as refused:
        connect("openai:m", api_key=key, client=BytesClient())
    assert refused.value.code is ErrorCode.INVALID_CONFIG
    assert "sk-" not in str(refused.value)
    if "\x00" not in key:  # no environment variable has one
        monkeypatch.setenv("OPENAI_API_KEY", key)
        with pytest.raises(PartValidationError, match="Check OPENAI_API_KEY") as refused:
            connect("openai:m", client=BytesClient())
        assert "sk-" not in str(refused.value)


@pytest.mark.parametrize("name", ["nobody:m", "nobody/m", "m", "", ":m", "anthropic:", "nobody/a:b"])
def test_an_unknown_name_lists_the_known_ones(name: str) -> None:
    with pytest.raises(PartValidationError) as unknown:
        connect(name, api_key="k", client=BytesClient())
    assert unknown.value.code is ErrorCode.INVALID_CONFIG
    assert "anthropic" in str(unknown.value)
    assert isinstance(unknown.value, BartackError)


@pytest.mark.parametrize(
    ("name", "vendor", "model_id"),
    [
        ("anthropic/claude-x", "anthropic", "claude-x"),
        ("openrouter/anthropic/claude-x:free", "openrouter", "anthropic/claude-x:free"),
        ("openrouter:anthropic/claude-x:free", "openrouter", "anthropic/claude-x:free"),
        ("ollama/llama3:8b", "ollama", "llama3:8b"),
    ],
)
def test_colon_and_slash_names_are_equivalent(name: str, vendor: str, model_id: str) -> None:
    model = connect(name, api_key="k", client=BytesClient())
    assert (model.vendor.name, model.get_config().model_id) == (vendor, model_id)


@pytest.mark.parametrize("name", ["bedrock:m", "vertex:m"])
async def test_missing_cloud_credentials_fail_before_any_request(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for variable, value in {
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": str(tmp_path / "none"),
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "none"),
        "GOOGLE_APPLICATION_CREDENTIALS": str(tmp_path / "none"),
        "GOOGLE_CLOUD_PROJECT": "p",
    }.items():
        monkeypatch.setenv(variable, value)
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    client = BytesClient()
    start, failed = await read(connect(name, client=client).stream([user("Hello")]))
    assert isinstance(start.delta, Start)
    assert isinstance(failed.delta, Failed)
    assert failed.delta.error_code is ErrorCode.MISSING_CREDENTIALS
    assert client.requests == []


async def test_headers_and_config_arguments_are_sent() -> None:
    request = await request_of("openai-chat:m", headers={"X-Team": "blue"}, temperature=0.5, user="ann")
    assert request.headers["X-Team"] == "blue"
    body = json.loads(request.body)
    assert body["temperature"] == 0.5
    assert body["user"] == "ann"


def test_the_default_client_uses_http() -> None:
    assert isinstance(connect("openai:m", api_key="k").client, HttpClient)


@pytest.mark.parametrize("row", VENDORS.values(), ids=lambda row: row.name)
def test_every_vendor_row_is_consistent(row: Vendor) -> None:
    assert row.format in FORMATS
    assert vendor_named(row.name) is row
    assert row.key_names or not row.needs_key or row.auth == "google"
    assert row.base_url is None or row.base_url.startswith("http")


def test_a_custom_vendor_is_a_row() -> None:
    row = Vendor(name="mine", format="openai-chat", base_url="https://mine.example", path="/chat", auth="none")
    model = ProviderModel(BytesClient(), connect("openai:m", api_key="k", client=BytesClient()).config, vendor=row)
    assert model.provider == "mine"
    with pytest.raises(PartValidationError):
        Vendor(name="mine", format="openai-chat", path="chat")
