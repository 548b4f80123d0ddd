"""A web server for agents: a JSON API with live events, and a page to watch and steer runs.

`app` is an ASGI application; ``bartack serve`` runs it.
"""

from bartack.web.access import User
from bartack.web.app import WebApp, app
from bartack.web.endpoint import Call, Endpoint

__all__ = ["Call", "Endpoint", "User", "WebApp", "app"]
