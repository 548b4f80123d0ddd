"""`json_text`: the one way in which a value becomes JSON text for a model or a provider."""

from decimal import Decimal

import pytest

from bartack.nouns.json_values import json_text


def test_the_text_is_compact_and_keeps_key_order_and_unicode() -> None:
    assert json_text({"b": [1, 2.5, None, True], "a": "ü\u2028"}) == '{"b":[1,2.5,null,true],"a":"ü\u2028"}'


def test_half_a_surrogate_pair_stays_as_it_is() -> None:
    assert json_text({"t": "\ud83d"}) == '{"t":"\ud83d"}'


def test_default_converts_what_json_has_no_type_for() -> None:
    assert json_text([Decimal("1.5")], default=str) == '["1.5"]'
    with pytest.raises(TypeError):
        json_text([Decimal("1.5")])
