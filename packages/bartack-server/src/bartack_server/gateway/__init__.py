"""The gateway: any client of Anthropic, OpenAI, Google or Ollama on any model.

`gateway` is an ASGI application; ``bartack gateway`` runs it.
"""

from bartack_server.gateway.app import GatewayApp, gateway

__all__ = ["GatewayApp", "gateway"]
