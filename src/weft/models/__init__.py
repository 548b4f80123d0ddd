"""Models: `model` makes one by name, `Model` is what anyone's looks like, `guarded` keeps any of them to the contract.

    model = weft.model("anthropic:claude-sonnet-4-6")
    async for delta in model.stream([weft.user("Hello")]): ...

`LocalModel` runs in this process, with no key and no network (``weft.model("local")``).
`ScriptedModel` answers from a script and `replay` from a recording; neither needs a network.
"""

from weft.models.client import HttpRequest, HttpResponse, ProviderClient, Timeouts
from weft.models.connect import model
from weft.models.defaults import DefaultModel, default_model
from weft.models.guard import GuardedStream, guarded
from weft.models.local import LocalModel
from weft.models.model import Model, RequestMetadata
from weft.models.prices import ModelInfo, Prices, cost_of
from weft.models.provider import ErrorMapper, PreparedCall, ProviderModel
from weft.models.recording import RecordingClient, replay
from weft.models.scripted import ScriptedModel
from weft.models.vendors import VENDORS, Vendor, vendor_named

__all__ = [
    "VENDORS",
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
    "Timeouts",
    "Vendor",
    "cost_of",
    "default_model",
    "guarded",
    "model",
    "replay",
    "vendor_named",
]
