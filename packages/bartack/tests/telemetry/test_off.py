"""Without telemetry nothing of OpenTelemetry is imported, and without the package the rest of Bartack works.

bench/telemetry.py measures that it costs nothing.
"""

import pytest

from tests.test_import_cost import ONLY_MSGSPEC, loaded_by

RUN = """
import asyncio
from bartack import Agent, ScriptedModel, ToolCall, assistant, tool
from bartack.store import MemoryStore

@tool
def weather(city: str) -> str:
    "Weather forecast."
    return "Rain."

model = ScriptedModel([assistant(ToolCall("c1", "weather", {"city": "Paris"})), "Rain."])
result = asyncio.run(Agent(model, tools=[weather], store=MemoryStore()).run("Will it rain?"))
assert result.output == "Rain."
"""


@pytest.mark.parametrize("code", ["import bartack", RUN])
def test_nothing_is_imported_without_telemetry(code: str) -> None:
    loaded = loaded_by(code)
    assert "bartack.stream.assembler" in loaded
    assert sorted(name for name in loaded if name.startswith(("opentelemetry", "bartack.telemetry"))) == []


def test_without_the_extra_the_import_names_it() -> None:
    with pytest.raises(AssertionError, match=r"pip install 'bartack\[otel\]'"):
        loaded_by(ONLY_MSGSPEC + "import bartack.telemetry")


def test_an_application_needs_only_the_api() -> None:
    loaded = loaded_by(
        RUN.replace("store=MemoryStore()", "store=MemoryStore(), telemetry=Telemetry()").replace(
            "import asyncio", "import asyncio\nfrom bartack.telemetry import Telemetry"
        )
    )
    assert "opentelemetry.trace" in loaded
    assert sorted(name for name in loaded if name.startswith(("opentelemetry.sdk", "opentelemetry.exporter"))) == []
