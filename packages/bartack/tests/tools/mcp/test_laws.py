"""What holds for any text and any configuration."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bartack.nouns.errors import BartackError
from bartack.tools.mcp.config import (
    as_json,
    expand_variables,
    load_servers,
    mask_values,
    parse_server,
    plain_text,
    secrets_in,
    server_name,
    visible_prose,
    with_settings,
)
from bartack.tools.mcp.definitions import tool_name

CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
VALID_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


@given(st.text())
def test_text_of_a_server_has_no_terminal_control(text: str) -> None:
    once = plain_text(text)
    assert not CONTROL.search(once)
    assert plain_text(once) == once
    assert not CONTROL.search(visible_prose(text))
    once.encode()  # no lone surrogates


@pytest.mark.parametrize(
    ("text", "visible"),
    [
        ("Adds.\n\n\tTwo numbers: é, 日本.", "Adds.\n\n\tTwo numbers: é, 日本."),
        ("zero\u200b width, \u202eright to left", "zero width, right to left"),
        (
            "selectors\U000e0158\U000e0159\ufe00\ufe0f, fillers\u3164\u115f\u2800, ❤\ufe0f\ufe0f",
            "selectors, fillers, ❤\ufe0f",
        ),
        ("tags\U000e0068\U000e0069\nprivate\ue000", "tags\nprivate"),
    ],
)
def test_invisible_characters_are_removed_from_descriptions(text: str, visible: str) -> None:
    assert visible_prose(text) == visible


@given(st.text(max_size=200), st.text(max_size=200))
def test_names_of_tools_are_accepted_by_every_provider_and_differ(first: str, second: str) -> None:
    first_name = tool_name("server_", first)
    assert VALID_NAME.fullmatch(first_name)
    second_name = tool_name("server_", second, used_names=[first_name])
    assert VALID_NAME.fullmatch(second_name)
    assert (first_name != second_name) or first == second


@given(st.text(min_size=6), st.text(), st.text())
def test_the_value_of_a_secret_is_replaced_by_its_name(secret: str, before: str, suffix: str) -> None:
    text = mask_values(f"{before}{secret}{suffix}", {"TOKEN": secret})
    assert "${TOKEN}" in text or secret in "${TOKEN}"


names = st.from_regex(r"[A-Z_][A-Z0-9_]{0,8}", fullmatch=True)


@given(st.lists(st.text(), max_size=5), st.dictionaries(names, names.map("${{{}}}".format), max_size=3), st.booleans())
def test_a_configuration_that_is_written_is_read_again(args: list[str], env: dict[str, str], is_trusted: bool) -> None:
    config = with_settings(parse_server(["program", *args]), env=env, trust_hints=is_trusted)
    assert load_servers({"mcpServers": {"a": as_json(config)}}) == {"a": config}


@given(st.dictionaries(names, st.text(min_size=1).filter(lambda text: "$" not in text), min_size=1))
def test_variables_are_expanded_from_the_environment(variables: dict[str, str]) -> None:
    text = "-".join(f"${{{name}}}" for name in variables)
    assert expand_variables(text, variables) == "-".join(variables.values())
    assert secrets_in([text], variables) == variables
    with pytest.raises(BartackError, match="is not set"):
        expand_variables(text, {})
    assert expand_variables("${NAME:-default}", {}) == "default"


@given(st.text())
def test_every_command_has_a_name(command: str) -> None:
    try:
        config = parse_server(command)
    except BartackError:
        return
    assert VALID_NAME.match(server_name(config))


@pytest.mark.parametrize(
    ("server", "name"),
    [
        ("npx -y @modelcontextprotocol/server-everything@1.2", "server-everything"),
        ("uvx mcp-server-git", "mcp-server-git"),
        ("node /srv/server-files/dist/index.js", "server-files"),
        ("docker run -i --rm mcp/github", "github"),
        ("python -m my.tools", "my_tools"),
        ("https://mcp.example.com/mcp", "example"),
        ("http://127.0.0.1:8000/mcp", "127_0_0_1"),
    ],
)
def test_the_name_of_a_server_is_its_package_program_or_host(server: str, name: str) -> None:
    assert server_name(parse_server(server)) == name
