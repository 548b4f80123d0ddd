"""A kit for authors of models and vendors: does a model keep the streaming contract, also when its provider does not?

`check_stream` asks a model once and checks everything that comes out. `check_fault` puts a real HTTP server that
misbehaves in one exact way in front of a model and checks what the model makes of it. With pytest::

    import pytest
    from bartack.testing import Scenario, check_fault, check_stream, scenarios

    @pytest.mark.parametrize("scenario", scenarios("openai-chat"), ids=str)
    async def test_my_model_survives(scenario: Scenario) -> None:
        await check_fault(scenario, lambda base_url: MyModel(base_url=base_url, silence_seconds=0.5))

    async def test_my_model_answers() -> None:
        answer = await check_stream(MyModel())
        assert answer.message is not None

Both raise `AssertionError` with the broken rule. The scenarios are data (`bartack.testing.faults`): which bytes go out,
how the connection ends, and which outcomes are right. The model has to give up on a silent server within ten seconds.
"""

from bartack.testing.check import Answer, check_fault, check_stream
from bartack.testing.faults import FAULT_FORMATS, Outcome, Reset, Scenario, Stall, scenarios
from bartack.testing.server import ReceivedRequest, fault_server

__all__ = [
    "FAULT_FORMATS",
    "Answer",
    "Outcome",
    "ReceivedRequest",
    "Reset",
    "Scenario",
    "Stall",
    "check_fault",
    "check_stream",
    "fault_server",
    "scenarios",
]
