"""The client that the conformance suite tests: Bartack's, with an agent that calls every tool of the server once."""

import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
from mcp.client.auth.extensions.client_credentials import (
    ClientCredentialsOAuthProvider,
    PrivateKeyJWTOAuthProvider,
    SignedJWTParameters,
)
from mcp.client.auth.extensions.identity_assertion import IdentityAssertionOAuthProvider

from bartack import Agent, ScriptedModel, ToolCall, assistant
from bartack.nouns.entries import ApprovalRequired
from bartack.nouns.tables import AgentStatus
from bartack.tools import Decision, ToolDefinition
from bartack.tools.mcp import HttpServer, McpServer, mcp
from bartack.tools.mcp.oauth import LoopbackSignIn

DOCUMENT = "https://conformance-test.local/client-metadata.json"  # about the client; the suite only compares the URL
SAMPLES: dict[str, Any] = {"number": 1, "integer": 1, "string": "text", "boolean": True, "array": [], "object": {}}


class Person:
    """Approves everything, and signs in wherever asked to."""

    def __init__(self) -> None:
        self._visits: set[asyncio.Task[None]] = set()

    async def decide(self, request: ApprovalRequired) -> Decision:
        return Decision("approve")

    def show(self, url: str) -> None:
        task = asyncio.create_task(self._visit(url))
        self._visits.add(task)
        task.add_done_callback(self._visits.discard)

    async def _visit(self, url: str) -> None:
        async with httpx2.AsyncClient(follow_redirects=True) as client:
            await client.get(url)


class Storage:
    """Keeps tokens in memory, for the SDK's providers."""

    tokens: Any = None
    client: Any = None

    async def get_tokens(self) -> Any:
        return self.tokens

    async def set_tokens(self, tokens: Any) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> Any:
        return self.client

    async def set_client_info(self, client_info: Any) -> None:
        self.client = client_info


async def auth_for(scenario: str, url: str, context: dict[str, Any], person: Person) -> Any:
    """How to sign in: as a person, or with the credentials of a machine, for which the SDK has providers."""
    if not scenario.startswith(("auth/client-credentials", "auth/enterprise-managed")):
        return LoopbackSignIn(person.show)
    client_id, issuer = context["client_id"], await issuer_of(url)
    match scenario:
        case "auth/client-credentials-basic":
            return ClientCredentialsOAuthProvider(url, Storage(), client_id, context["client_secret"], issuer=issuer)
        case "auth/client-credentials-jwt":
            signed = SignedJWTParameters(
                issuer=client_id,
                subject=client_id,
                signing_algorithm=context["signing_algorithm"],
                signing_key=context["private_key_pem"],
            )
            assertion = signed.create_assertion_provider()
            return PrivateKeyJWTOAuthProvider(url, Storage(), client_id, assertion, issuer=issuer)
        case _:
            return IdentityAssertionOAuthProvider(
                url,
                Storage(),
                client_id,
                context["client_secret"],
                issuer,
                lambda audience, resource: exchanged(context, audience, resource),
                token_endpoint_auth_method="client_secret_basic",
            )


async def issuer_of(url: str) -> str:
    """The authorization server of a machine's credentials, which its configuration would name."""
    parts = urlsplit(url)
    metadata = f"{parts.scheme}://{parts.netloc}/.well-known/oauth-protected-resource{parts.path}"
    async with httpx2.AsyncClient() as client:
        return str((await client.get(metadata)).json()["authorization_servers"][0])


async def exchanged(context: dict[str, Any], audience: str, resource: str) -> str:
    """What an identity provider gives in exchange for the token of a person (RFC 8693)."""
    kind = "urn:ietf:params:oauth:token-type:"
    form = {
        "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
        "requested_token_type": f"{kind}id-jag",
        "subject_token": context["idp_id_token"],
        "subject_token_type": f"{kind}id_token",
        "client_id": context["idp_client_id"],
        "audience": audience,
        "resource": resource,
    }
    async with httpx2.AsyncClient() as client:
        return str((await client.post(context["idp_token_endpoint"], data=form)).json()["access_token"])


def calls_for(tools: Sequence[ToolDefinition], context: dict[str, Any]) -> list[ToolCall]:
    """The calls that the scenario asks for; by default one of each tool."""
    schemas = {tool.name.removeprefix("c_"): tool.parameter_schema for tool in tools}
    calls = [(name, arguments_for(name, schemas)) for name in schemas]
    if "toolCalls" in context:  # null stands for an argument that is left out; the tool's own schema forbids it
        calls = [
            (call["name"], {name: value for name, value in call["arguments"].items() if value is not None})
            for call in context["toolCalls"]
        ]
    return [ToolCall(f"c{n}", f"c_{name}", arguments) for n, (name, arguments) in enumerate(calls)]


def arguments_for(name: str, schemas: dict[str, Any]) -> dict[str, Any]:
    if name == "json_schema_echo":  # it wants to see what the client has kept of another tool's schema
        return {"schema": schemas["json_schema_2020_12_tool"]}
    properties = schemas[name].get("properties", {})
    return {name: SAMPLES[shape.get("type", "string")] for name, shape in properties.items()}


async def run_scenario(scenario: str, url: str, context: dict[str, Any]) -> str | None:
    """Do what the scenario asks of a client; the problem if it could not connect."""
    person = Person()
    with tempfile.TemporaryDirectory() as folder:
        config = HttpServer(
            url=url,
            client_id=context.get("client_id"),
            client_secret=context.get("client_secret"),
            client_metadata_url=DOCUMENT if scenario == "auth/basic-cimd" else None,
        )
        server: McpServer = mcp(
            config,
            name="c",
            known_tools=Path(folder, "known.json"),
            tokens=Path(folder, "tokens.json"),
            auth=await auth_for(scenario, url, context, person),
        )
        await server.open()
        try:
            if server.status.state != "connected":
                return server.status.problem
            script: list[Any] = [*map(assistant, calls_for(server.tools, context)), "done"]
            result = await Agent(ScriptedModel(script), tools=[server], store="memory:", approver=person).run("Go.")
            return None if result.status is AgentStatus.COMPLETED else str(result.error)
        finally:
            await server.close()
