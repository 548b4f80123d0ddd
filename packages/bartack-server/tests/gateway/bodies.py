"""Requests of clients in every format: one prompt, and the tool `look`."""

from typing import Any

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}


def request(format: str, *, stream: bool = True, model: str = "m", prompt: str = "Look!") -> tuple[str, dict[str, Any]]:
    """The path and the body."""
    tool = {"name": "look", "description": "Look."}
    match format:
        case "anthropic-messages":
            tools = [{**tool, "input_schema": SCHEMA}]
            messages = [{"role": "user", "content": prompt}]
            body = {"model": model, "max_tokens": 100, "messages": messages, "tools": tools, "stream": stream}
            return "/v1/messages", body
        case "openai-chat":
            tools = [{"type": "function", "function": {**tool, "parameters": SCHEMA}}]
            messages = [{"role": "user", "content": prompt}]
            body = {"model": model, "messages": messages, "tools": tools, "stream": stream}
            return "/v1/chat/completions", body
        case "openai-responses":
            tools = [{"type": "function", **tool, "parameters": SCHEMA}]
            return "/v1/responses", {"model": model, "input": prompt, "tools": tools, "stream": stream}
        case "gemini-generate":
            method = "streamGenerateContent?alt=sse" if stream else "generateContent"
            declarations = [{**tool, "parametersJsonSchema": SCHEMA}]
            contents = [{"role": "user", "parts": [{"text": prompt}]}]
            body = {"contents": contents, "tools": [{"functionDeclarations": declarations}]}
            return f"/v1beta/models/{model}:{method}", body
        case "ollama-chat":
            tools = [{"type": "function", "function": {**tool, "parameters": SCHEMA}}]
            messages = [{"role": "user", "content": prompt}]
            return "/api/chat", {"model": model, "messages": messages, "tools": tools, "stream": stream}
    raise AssertionError(format)
