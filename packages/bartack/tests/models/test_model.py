"""Every model has the signature of the specification, and a request is built once."""

import inspect
from typing import Any

import pytest

from bartack.models import LocalModel, Model, ProviderModel, ScriptedModel, StreamingModel
from bartack.models.model import respond
from bartack.nouns.config import ModelConfig
from bartack.nouns.messages import user
from bartack.nouns.requests import ModelRequest, RequestMetadata


def parameters(function: Any) -> list[inspect.Parameter]:
    return [*inspect.signature(function).parameters.values()]


@pytest.mark.parametrize("model", [StreamingModel, ProviderModel, LocalModel, ScriptedModel])
def test_stream_has_the_signature_of_the_specification(model: type[Model]) -> None:
    """001-4.1.3"""
    assert parameters(model.stream) == parameters(Model.stream) == parameters(StreamingModel.request)


def test_a_request_reaches_the_model_as_it_was_built() -> None:
    model = ScriptedModel(["Hi."])
    request = ModelRequest((user("Hello"),), config=model.get_config(), metadata=RequestMetadata(run_id="run-1"))
    respond(model, request)
    assert model.calls[0] == request
    assert model.calls[0].config is request.config


def test_a_model_with_a_stream_of_its_own_gets_what_differs_from_its_settings() -> None:
    """001-4.1.3"""

    class Own(ScriptedModel):
        def stream(self, *arguments: Any, **options: Any) -> Any:
            return arguments, options

    model = Own([])
    metadata = RequestMetadata(run_id="run-1")
    config = ModelConfig("scripted", temperature=0.5)
    request = ModelRequest((user("Hello"),), config=config, metadata=metadata, invocation_state={"user": "ann"})
    outcome: Any = respond(model, request)
    assert outcome == (
        ((user("Hello"),), ()),
        {"request_metadata": metadata, "temperature": 0.5, "invocation_state": {"user": "ann"}},
    )
