"""A web server for agents: a JSON API with live events, and a page to watch and steer runs.

`app` is an ASGI application; ``bartack serve`` runs it.
"""

from bartack_server.web.access import User
from bartack_server.web.app import WebApp, app
from bartack_server.web.endpoint import Call, Endpoint

__all__ = ["Call", "Endpoint", "User", "WebApp", "app"]
