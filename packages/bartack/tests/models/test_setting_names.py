"""Names of settings: misspelled ones are refused, and those whose effect on the answer would not be read."""

from typing import Any

import pytest

from bartack import ErrorCode, PartValidationError, connect, user
from bartack.models import ScriptedModel
from tests.models.doubles import BytesClient


def anthropic(**settings: Any) -> Any:
    return connect("anthropic:claude-sonnet-4-6", api_key="k", client=BytesClient(), **settings)


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        *(("tool_choise", "tool_choice"), ("temperture", "temperature"), ("max_token", "max_tokens"), ("sed", "seed")),
        *(("maxTokens", "max_tokens"), ("topP", "top_p"), ("apikey", "api_key"), ("base_urls", "base_url")),
        *(("timeout", "timeouts"), ("limits", "limit")),
    ],
)
def test_a_misspelled_setting_is_refused_wherever_it_is_passed(wrong: str, right: str) -> None:
    message = f"Unknown model setting '{wrong}'. Did you mean '{right}'?"
    with pytest.raises(PartValidationError, match=message) as refused:
        anthropic(**{wrong: 1})
    assert (refused.value.code, refused.value.path) == (ErrorCode.INVALID_CONFIG, f"$.{wrong}")
    model = anthropic()
    setting: dict[str, Any] = {wrong: 1}
    with pytest.raises(PartValidationError, match=message):
        model.update_config(**setting)
    with pytest.raises(PartValidationError, match=message):
        model.stream([user("Hi")], **setting)
    with pytest.raises(PartValidationError, match=message):
        ScriptedModel(["Hi"]).stream([user("Hi")], **setting)


@pytest.mark.parametrize("setting", [{"n": 2}, {"candidateCount": 3}, {"logprobs": True}, {"top_logprobs": 5}])
def test_settings_that_no_answer_reflects_are_refused(setting: dict[str, Any]) -> None:
    with pytest.raises(PartValidationError, match=r"a call has one answer|no log probabilities"):
        anthropic(**setting)


@pytest.mark.parametrize(
    "setting", [{"top_k": 5}, {"n": 1}, {"logprobs": False}, {"metadata": {"user_id": "ann"}}, {"speed": "fast"}]
)
def test_other_names_are_settings_of_the_provider(setting: dict[str, Any]) -> None:
    assert anthropic(**setting).get_config().extra == setting
