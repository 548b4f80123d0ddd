"""The command that the conformance suite runs: it passes the scenario on to the test, which has the client.

    python conformance_command.py PORT URL

Importing the client in each of some twenty processes would take a minute of CPU time.
"""

import json
import os
import socket
import sys

with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as connection:
    context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
    task = {"scenario": os.environ.get("MCP_CONFORMANCE_SCENARIO", ""), "url": sys.argv[2], "context": context}
    connection.sendall(json.dumps(task).encode() + b"\n")
    problem = json.loads(connection.makefile("rb").readline())
sys.exit(problem)
