"""A server of the Model Context Protocol over standard streams whose only tool returns the ``_meta`` of its request."""

import json
import sys
from typing import Any


def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    """The result of a request."""
    match method:
        case "initialize":
            version = params["protocolVersion"]
            info = {"name": "meta", "version": "1"}
            return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
        case "tools/list":
            return {"tools": [{"name": "meta", "inputSchema": {"type": "object", "properties": {}}}]}
        case "tools/call":
            return {"content": [{"type": "text", "text": json.dumps(params.get("_meta", {}))}]}
        case _:
            return {}


for line in sys.stdin:
    request = json.loads(line)
    if "id" in request and "method" in request:
        result = answer(request["method"], request.get("params", {}))
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)
