"""Protocols of user interfaces: pure encoders of a run's events, for any web framework or none.

`ai_sdk` writes the UI message stream of the AI SDK (`useChat`), `ag_ui` the events of AG-UI, and `acp` the updates of
the Agent Client Protocol for editors; `ai_sdk_messages` and `ag_ui_messages` read what their clients send. All of them
build on `RunReader`.
"""
