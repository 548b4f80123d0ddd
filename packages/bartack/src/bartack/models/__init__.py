"""Models: `connect` creates one by name, `Model` is their interface, and `guarded` enforces the streaming contract.

    model = bartack.connect("anthropic:claude-sonnet-4-6")
    async for delta in model.stream([bartack.user("Hello")]): ...

`LocalModel` runs in this process (``bartack.connect("local")``), `ScriptedModel` plays a script, and `replay` replays a
recording; none of them needs a key or the network.
"""

from bartack.models.by_name import DefaultModel, connect, default_model
from bartack.models.client import HttpRequest, HttpResponse, ProviderClient, Timeouts
from bartack.models.guard import GuardedStream, guarded
from bartack.models.local import LocalModel
from bartack.models.model import Model, StreamingModel
from bartack.models.prices import ModelInfo, Prices, cost_of
from bartack.models.provider import CallLimit, ErrorMapper, PreparedCall, ProviderModel
from bartack.models.recording import RecordingClient, replay
from bartack.models.scripted import ScriptedModel
from bartack.models.vendors import VENDORS, Vendor, vendor_named
from bartack.nouns.requests import RequestMetadata

__all__ = [
    "VENDORS",
    "CallLimit",
    "DefaultModel",
    "ErrorMapper",
    "GuardedStream",
    "HttpRequest",
    "HttpResponse",
    "LocalModel",
    "Model",
    "ModelInfo",
    "PreparedCall",
    "Prices",
    "ProviderClient",
    "ProviderModel",
    "RecordingClient",
    "RequestMetadata",
    "ScriptedModel",
    "StreamingModel",
    "Timeouts",
    "Vendor",
    "connect",
    "cost_of",
    "default_model",
    "guarded",
    "replay",
    "vendor_named",
]
