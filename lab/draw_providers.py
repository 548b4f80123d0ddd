"""Generate the tables in docs/guides/providers.md: which vendor takes which setting and offers which tool.

With --check, only check that they are current. A request with each setting is encoded for each vendor: what becomes a
loss is not taken. The models are examples; a setting may depend on the model.
"""

import sys
from typing import Any

from bartack.formats import encode, format_named
from bartack.models import VENDORS
from bartack.models.vendors import Vendor
from bartack.nouns.config import CacheConfig, ModelConfig, ThinkingConfig, ToolSpec
from bartack.nouns.hosted_tools import HOSTED_TOOLS
from bartack.nouns.messages import user
from bartack.nouns.parts import Image
from bartack.nouns.requests import ModelRequest
from lab.pages import fill_section
from lab.repository import ROOT

PAGE = ROOT / "docs" / "guides" / "providers.md"
SETTINGS: dict[str, Any] = {
    "seed": {"seed": 1},
    "stop_sequences": {"stop_sequences": ("END",)},
    "parallel_tool_calls": {"parallel_tool_calls": False},
    "effort": {"thinking": ThinkingConfig(effort="low")},
    "output_schema": {"output_schema": {"type": "object", "properties": {}, "additionalProperties": False}},
    "cache ttl": {"cache_config": CacheConfig(ttl="1h")},
    "service_tier": {"service_tier": "flex"},
    "verbosity": {"verbosity": "low"},
    "image detail": {},
}
MODELS = {
    "anthropic": "claude-sonnet-4-6",
    "openai": "gpt-5.5",
    "gemini": "gemini-3.5-flash",
    "bedrock": "amazon.nova-2",
}
PICTURE = Image("image/png", data=b"\x89PNG\r\n\x1a\n", detail="low")


def provider_of(vendor: Vendor) -> str:
    return vendor.provider or vendor.name


def model_for(vendor: Vendor) -> str:
    family = vendor.format.partition("-")[0]
    return vendor.default_model or MODELS.get(family, "model")


def takes(vendor: Vendor, setting: str) -> bool:
    """Whether a request with this setting is encoded without a loss."""
    content = ("Look", PICTURE) if setting == "image detail" else ("Hello",)
    request = ModelRequest(
        (user(*content),),
        config=ModelConfig(model_for(vendor), **SETTINGS[setting]),
        tools=(ToolSpec("weather", {"type": "object", "properties": {}}),),
        provider=provider_of(vendor),
    )
    return not encode(vendor.format, request).report.losses


def offers(vendor: Vendor, tool: str) -> bool:
    return format_named(vendor.format).hosted.row_of(tool, provider_of(vendor), model_for(vendor)) is not None


def table(columns: list[str], rows: dict[str, list[bool]]) -> str:
    lines = [f"| vendor | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    lines += [f"| `{name}` | {' | '.join('yes' if cell else '' for cell in cells)} |" for name, cells in rows.items()]
    return "\n".join(lines)


def drawn(text: str) -> str:
    """The page with both tables regenerated."""
    settings = {name: [takes(vendor, setting) for setting in SETTINGS] for name, vendor in VENDORS.items()}
    tools = {name: [offers(vendor, tool) for tool in HOSTED_TOOLS] for name, vendor in VENDORS.items()}
    text = fill_section(text, "settings", table(list(SETTINGS), settings))
    offering = {name: cells for name, cells in tools.items() if any(cells)}
    return fill_section(text, "provider tools", table([f"`{tool}`" for tool in HOSTED_TOOLS], offering))


def main() -> None:
    text = PAGE.read_text(encoding="utf-8")
    redrawn = drawn(text)
    if "--check" in sys.argv[1:]:
        raise SystemExit(0 if redrawn == text else f"{PAGE.name} is not current: run make docs")
    PAGE.write_text(redrawn, encoding="utf-8")


if __name__ == "__main__":
    main()
