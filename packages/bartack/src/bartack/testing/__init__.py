"""Checks for authors of models, vendors and stores.

Models: does a model obey the streaming contract, even when its provider fails? `check_stream` calls a model once and
checks every delta. `check_fault` connects a model to a real HTTP server that fails in one specific way, and checks how
the model reports it. With pytest::

    import pytest
    from bartack.testing import Scenario, check_fault, check_stream, scenarios

    @pytest.mark.parametrize("scenario", scenarios("openai-chat"), ids=str)
    async def test_my_model_handles_faults(scenario: Scenario) -> None:
        await check_fault(scenario, lambda base_url: MyModel(base_url=base_url, silence_seconds=0.5))

    async def test_my_model_answers() -> None:
        result = await check_stream(MyModel())
        assert result.message is not None

Both raise `AssertionError` that describes the violation. The scenarios are data (`bartack.testing.faults`): the bytes
to send, how the connection ends, and the correct outcome. A model must give up on a silent server within ten seconds.

Stores: does a store obey the contract of `bartack.store.session_store`? `store_checks` are its rules, one check each::

    from functools import partial
    from pathlib import Path

    import pytest
    from bartack.testing import StoreCheck, store_checks

    @pytest.mark.parametrize("check", store_checks(), ids=str)
    async def test_my_store(check: StoreCheck, tmp_path: Path) -> None:
        await check(partial(MyStore.open, tmp_path / "sessions"))
"""

from bartack.testing.faults import FAULT_FORMATS, ExpectedOutcome, Reset, Scenario, Stall, scenarios
from bartack.testing.model_checks import ReceivedRequest, StreamResult, check_fault, check_stream, fault_server
from bartack.testing.store_checks import StoreCheck, store_checks
from bartack.testing.store_faults import KillReport, check_damage, kill_writers
from bartack.testing.store_steps import OpenStore

__all__ = [
    "FAULT_FORMATS",
    "ExpectedOutcome",
    "KillReport",
    "OpenStore",
    "ReceivedRequest",
    "Reset",
    "Scenario",
    "Stall",
    "StoreCheck",
    "StreamResult",
    "check_damage",
    "check_fault",
    "check_stream",
    "fault_server",
    "kill_writers",
    "scenarios",
    "store_checks",
]
