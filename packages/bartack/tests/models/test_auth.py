"""Authentication: header keys, AWS signatures, and Google tokens from a local token service."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from bartack.models import HttpRequest
from bartack.models.auth import AwsSignature, GoogleToken, HeaderKey, NoCredentials
from bartack.nouns.errors import ErrorCode, ModelError
from bartack.testing import ExpectedOutcome, Scenario, fault_server

REQUEST = HttpRequest(url="https://bedrock-runtime.us-east-1.amazonaws.com/model/a%3A0/converse-stream", body=b"{}")
SECRET = "wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY"


@pytest.fixture(autouse=True)
def _no_accounts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)


async def test_no_credentials_leave_the_request_unchanged() -> None:
    assert await NoCredentials().sign(REQUEST) is REQUEST


async def test_a_key_is_sent_in_its_header_and_listed_as_a_secret() -> None:
    signed = await HeaderKey("x-api-key", "the-key").sign(REQUEST)
    assert signed.headers == {"x-api-key": "the-key"}
    assert signed.secrets == ("the-key",)
    assert REQUEST.headers == {}


async def test_aws_requests_are_signed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_SESSION_TOKEN", "session-token")
    signed = await AwsSignature("us-east-1").sign(REQUEST)
    authorization = signed.headers["Authorization"]
    assert authorization.startswith("AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/")
    assert "/us-east-1/bedrock/aws4_request" in authorization
    assert signed.headers["X-Amz-Security-Token"] == "session-token"
    assert set(signed.secrets) == {"AKIDEXAMPLE", SECRET, "session-token"}
    assert (signed.url, signed.body) == (REQUEST.url, REQUEST.body)


async def test_missing_aws_credentials_name_the_variables_to_set() -> None:
    with pytest.raises(ModelError, match="AWS_BEARER_TOKEN_BEDROCK") as missing:
        await AwsSignature("us-east-1").sign(REQUEST)
    assert missing.value.code is ErrorCode.MISSING_CREDENTIALS


async def test_unreadable_aws_credentials_raise_model_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    with pytest.raises(ModelError, match="nobody") as broken:
        await AwsSignature("us-east-1").sign(REQUEST)
    assert broken.value.code is ErrorCode.MISSING_CREDENTIALS


async def test_missing_google_credentials_name_the_variable_to_set() -> None:
    with pytest.raises(ModelError, match="GOOGLE_APPLICATION_CREDENTIALS") as missing:
        await GoogleToken().sign(REQUEST)
    assert missing.value.code is ErrorCode.MISSING_CREDENTIALS


def _google_account(tmp_path: Path, token_uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    account: dict[str, Any] = {
        "type": "service_account",
        "project_id": "my-project",
        "client_email": "me@my-project.iam.gserviceaccount.com",
        "private_key_id": "1",
        "private_key": pem,
        "token_uri": token_uri,
    }
    file = tmp_path / "account.json"
    file.write_text(json.dumps(account))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))


def token_scenario(status: int, body: object) -> Scenario:
    return Scenario(
        name="token",
        format="-",
        status=status,
        headers={"Content-Type": "application/json", "Connection": "close"},
        steps=(json.dumps(body).encode(),),
        outcome=ExpectedOutcome(end="done"),
    )


async def test_a_google_token_is_fetched_once_and_reused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with fault_server(token_scenario(200, {"access_token": "token-1", "expires_in": 3600})) as server:
        token = GoogleToken()
        _google_account(tmp_path, server.base_url, monkeypatch)
        for _ in range(2):
            signed = await token.sign(REQUEST)
            assert signed.headers["Authorization"] == "Bearer token-1"
            assert signed.secrets == ("token-1",)
        assert len(server.requests) == 1


async def test_calls_that_begin_together_share_one_google_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with fault_server(token_scenario(200, {"access_token": "token-1", "expires_in": 3600})) as server:
        token = GoogleToken()
        _google_account(tmp_path, server.base_url, monkeypatch)
        await asyncio.gather(*(token.sign(REQUEST) for _ in range(5)))
        assert len(server.requests) == 1


async def test_a_rejected_google_account_raises_model_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with fault_server(token_scenario(400, {"error": "invalid_grant"})) as server:
        _google_account(tmp_path, server.base_url, monkeypatch)
        with pytest.raises(ModelError, match="invalid_grant") as refused:
            await GoogleToken().sign(REQUEST)
    assert refused.value.code is ErrorCode.MISSING_CREDENTIALS


@pytest.mark.parametrize("address", ["http://127.0.0.1:1", "file:///etc/passwd"])
async def test_an_unreachable_token_service_raises_model_error(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _google_account(tmp_path, address, monkeypatch)
    with pytest.raises(ModelError) as failed:
        await GoogleToken().sign(REQUEST)
    assert failed.value.code is ErrorCode.MISSING_CREDENTIALS


@pytest.mark.parametrize(
    ("credentials", "module", "extra"),
    [(AwsSignature("us-east-1"), "botocore.auth", "cloud"), (GoogleToken(), "google.auth", "cloud")],
)
async def test_a_missing_library_names_its_extra(
    credentials: AwsSignature | GoogleToken, module: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ModelError, match=rf"bartack\[{extra}\]"):
        await credentials.sign(REQUEST)
