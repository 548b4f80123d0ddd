"""`bartack doctor`: checks of the installation, keys, models, store, MCP servers and telemetry."""
