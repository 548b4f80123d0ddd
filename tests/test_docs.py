"""The docs are current: generated parts match the code, examples run, command lines parse, links resolve."""

import asyncio
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
import typer

import bartack
from bartack.models import VENDORS
from bartack.testing import fault_server, scenarios
from lab.repository import PACKAGES, ROOT, find_test

DOCS = ROOT / "docs"
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *(ROOT / "packages" / name / "README.md" for name in PACKAGES),
    *sorted(DOCS.rglob("*.md")),
]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def python(*words: str, stdin: str = "", **environment: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-W", "error", *words]
    return subprocess.run(
        command, input=stdin, capture_output=True, text=True, check=False, env={**os.environ, **environment}
    )


def alone(folder: Path) -> dict[str, str]:
    """An environment without keys, settings, sessions or models."""
    places = ("HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "BARTACK_CACHE")
    keys = {key: "" for vendor in VENDORS.values() for key in vendor.key_names}
    return {**keys, **dict.fromkeys(places, str(folder)), "BARTACK_STORE": "", "BARTACK_MODEL": ""}


# -- parts generated from the code


def is_current(page: str, **variables: str) -> bool:
    """Whether a page is what `make docs` would write now."""
    return python("-m", "lab.draw_docs", "--check", page, **variables).returncode == 0


@pytest.mark.parametrize("page", ["guides/providers.md", "guides/transcripts.md", "reference/command-rules.md"])
def test_the_parts_of_a_page_that_come_from_the_code_are_current(page: str) -> None:
    assert is_current(page)


def test_diagrams_match_the_tables() -> None:
    """D-4.7"""
    assert is_current("architecture.md")


@pytest.mark.parametrize("width", ["40", "200"])
def test_help_pages_match_the_commands_at_any_terminal_width(width: str) -> None:
    assert is_current("cli.md", COLUMNS=width, FORCE_COLOR="1")


@pytest.mark.parametrize(
    ("page", "current", "outdated"),
    [
        ("architecture.md", "running --> completed", "running --> lost"),
        ("guides/providers.md", "| `anthropic` |  | yes", "| `anthropic` | yes | yes"),
        ("guides/transcripts.md", "| `pi` |", "| `pie` |"),
        ("cli.md", "Usage: bartack decode", "Usage: bartack encode"),
        ("reference/command-rules.md", "\nasks  ", "\nRUNS  "),
    ],
)
def test_an_outdated_part_is_detected(page: str, current: str, outdated: str) -> None:
    from lab.draw_docs import drawn

    text = text_of(DOCS / page)
    changed = text.replace(current, outdated, 1)
    assert changed != text
    assert drawn(page, changed) == text


def test_the_tables_of_transcript_formats_have_every_row() -> None:
    from bartack_transcripts.formats import FORMATS

    page = text_of(DOCS / "guides" / "transcripts.md")
    for row in FORMATS.values():
        assert row.contents, row.name
        assert f"| `{row.name}` | {row.title}: " in page


def test_no_attack_runs() -> None:
    page = text_of(DOCS / "reference" / "command-rules.md")
    assert "\nasks  git grep -O./x.sh foo\n" in page
    assert "RUNS  " not in page


PROMISE = re.compile(r"`([\w/.-]+\.py)::(test_\w+)`")


def test_every_promise_of_the_trust_guide_has_a_test() -> None:
    page = text_of(DOCS / "guides" / "trust.md")
    _, _, table = page.partition("## Promises and their tests")
    rows = [line for line in table.partition("\n## ")[0].splitlines() if line.startswith("| ")][1:]
    assert len(rows) >= 20
    for row in rows:
        named = PROMISE.findall(row)
        assert named, f"no test is named in {row}"
        for file, test in named:
            assert f"def {test}(" in text_of(find_test(file)), f"{file} has no {test}"


@pytest.mark.parametrize(("page", "least"), [("docs/architecture.md", 50), ("CONTRIBUTING.md", 15)])
def test_a_page_about_the_code_names_existing_files(page: str, least: int) -> None:
    names = set(re.findall(r"`((?:[a-z_]+/)+(?:[a-z_]+\.(?:py|toml|txt))?)`", text_of(ROOT / page)))
    sources = PACKAGES.values()
    folders = [ROOT, *sources, *(source.parent for source in sources), *(source.parents[1] for source in sources)]
    names -= {"fuzz/", "site/"}  # written by experiments and `make docs`
    assert len(names) >= least
    assert {name for name in names if not any((folder / name).exists() for folder in folders)} == set()


# -- Python blocks


def blocks(page: Path) -> str:
    """All Python blocks of a page, in order, as one program."""
    return "\n".join(re.findall(r"^```python\n(.*?)^```$", text_of(page), re.DOTALL | re.MULTILINE))


@pytest.mark.parametrize(
    "page", [page for page in PAGES[1:] if blocks(page) and page.parent.name != "cookbook"], ids=name_of
)
def test_code_of_a_page_runs_without_a_key(page: Path, tmp_path: Path) -> None:
    done = python("-", stdin=blocks(page), **alone(tmp_path))
    assert done.returncode == 0, done.stderr


RECIPES = [page for page in (DOCS / "cookbook").glob("*.md") if page.name != "index.md"]


@pytest.mark.parametrize("page", sorted(RECIPES), ids=name_of)
def test_a_program_of_the_cookbook_prints_what_its_page_shows(page: Path, tmp_path: Path) -> None:
    done = python("-", stdin=blocks(page), **alone(tmp_path))
    assert done.returncode == 0, done.stderr
    assert done.stdout == "".join(re.findall(r"^```text\n(.*?)^```$", text_of(page), re.DOTALL | re.MULTILINE))


def test_the_cookbook_lists_every_program() -> None:
    listed = re.findall(r"^\| \[.*\]\((.*)\) \|", text_of(DOCS / "cookbook" / "index.md"), re.MULTILINE)
    assert sorted(listed) == sorted(page.name for page in RECIPES)
    assert len(listed) >= 10


async def test_code_of_the_readme_runs_with_a_provider(tmp_path: Path) -> None:
    """The provider is a local server that sends a complete answer."""
    whole_text = next(case for case in scenarios("anthropic-messages") if case.name == "complete text")
    async with fault_server(whole_text) as server:
        provider = {"ANTHROPIC_API_KEY": "not-a-real-key", "ANTHROPIC_BASE_URL": server.base_url, "NO_PROXY": "*"}
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-W", "error", "-"),
            env={**os.environ, **alone(tmp_path), **provider},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        _, stderr = await process.communicate(blocks(ROOT / "README.md").encode())
    assert process.returncode == 0, stderr.decode()


def test_every_guide_has_code() -> None:
    guides = {page for page in (DOCS / "guides").glob("*.md") if page.name != "index.md"}
    assert {page.name for page in guides if not blocks(page)} == set()


def test_first_look_runs_without_a_key() -> None:
    done = python(str(ROOT / "examples" / "first_look.py"))
    assert done.returncode == 0, done.stderr
    assert "stream_truncated" in done.stdout
    assert "arguments so far: {'city': 'Paris', 'days': 1}" in done.stdout


# -- command lines


def command_lines(text: str) -> Iterator[list[str]]:
    """The words after `bartack` of every command line in the console blocks."""
    for block in re.findall(r"^```console\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        for line in re.findall(r"^\$ (.*)$", block, re.MULTILINE):
            words = iter(shlex.split(line, comments=True))
            for word in words:
                if word == "bartack":
                    yield list(takewhile(lambda word: word not in {"|", ">", "&&", ";"}, words))


def command_of(words: list[str]) -> tuple[Any, list[str]]:
    """The command that the words name, and its arguments; `LookupError` if there is no such command."""
    from typer.main import get_command

    from bartack.cli.entry import installed_commands

    name, *arguments = [word for word in words if word != "--debug"]
    command: Any = get_command(import_module(installed_commands()[name].module).app)
    while arguments and hasattr(command, "commands"):
        if command.invoke_without_command and arguments[0].startswith("-"):
            break  # options of the group itself, such as `bartack gateway --to local`
        command, arguments = command.commands[arguments[0]], arguments[1:]
    return command, arguments


def parse(words: list[str]) -> None:
    """Parse the words as the command line does, without running anything; raises if they are invalid."""
    if words[:1] not in ([], ["--help"], ["--version"]):  # `bartack` alone starts the chat
        command, arguments = command_of(words)
        with suppress(typer.Exit):  # of an option that answers by itself, such as --json-schema
            command.make_context(words[0], arguments)


@pytest.mark.parametrize("page", [page for page in PAGES if [*command_lines(text_of(page))]], ids=name_of)
def test_every_command_line_of_a_page_is_valid(page: Path) -> None:
    for words in command_lines(text_of(page)):
        parse(words)


@pytest.mark.parametrize(
    "line",
    [
        "bartack dcode x",
        "bartack sessions lst",
        "bartack decode x --detlas",
        "bartack show",
        "bartack show x --as table",
    ],
)
def test_invalid_command_line_is_detected(line: str) -> None:
    ((*words,),) = command_lines(f"```console\n$ cat x | {line}  # a comment\n```\n")
    with pytest.raises(Exception, match=r".") as refused:
        parse(words)
    assert isinstance(refused.value, LookupError) or "Usage" in str(type(refused.value).__mro__)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_command_in_the_text_of_a_page_has_the_options_it_is_shown_with(page: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", text_of(page), flags=re.DOTALL | re.MULTILINE)
    for line in re.findall(r"`bartack ([a-z][^`]*)`", text):
        command, words = command_of(shlex.split(line))
        options = {"--help", *(name for option in command.params for name in (*option.opts, *option.secondary_opts))}
        used = {word.partition("=")[0] for word in takewhile(lambda word: word != "--", words) if word.startswith("-")}
        assert used <= options, line


# -- links and tables


def prose(page: Path) -> str:
    """The page without its code, where brackets are not links."""
    return re.sub(r"^```.*?^```$|`[^`\n]*`", "", text_of(page), flags=re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_between_pages_resolves(page: Path) -> None:
    inline = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", prose(page))
    targets = [*inline, *definitions(page).values()]
    assert [target for target in targets if not (page.parent / target).exists()] == []


def definitions(page: Path) -> dict[str, str]:
    """The targets of reference links, by label: ``[`label`]: target``."""
    return dict(re.findall(r"^\[(`[^\]]+`)\]: (\S+)$", text_of(page), re.MULTILINE))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_reference_link_has_a_definition_and_every_definition_a_link(page: Path) -> None:
    text = re.sub(r"^```.*?^```$|^\[`[^\]]+`\]: \S+$", "", text_of(page), flags=re.DOTALL | re.MULTILINE)
    assert set(re.findall(r"\[(`[^`\]\n]+`)\](?!\()", text)) == definitions(page).keys()


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_no_page_contains_a_path_of_the_machine_it_was_written_on(page: Path) -> None:
    places = re.findall(
        r"(?<![\w.~])/(?:home|root|work|tmp|Users|mnt|opt|var)/\S*|pypi\.org|pythonhosted", text_of(page)
    )
    assert places == []


def test_readme_fits_on_a_few_screens() -> None:
    assert len(text_of(ROOT / "README.md").splitlines()) <= 150


def test_a_page_or_an_example_uses_every_name_of_the_top_level() -> None:
    """Names that none of them needs are in the package of their layer."""
    pages = [DOCS / "guides", DOCS / "cookbook", ROOT / "examples"]
    texts = [text_of(page) for folder in pages for page in folder.rglob("*") if page.suffix in (".md", ".py")]
    words = set(re.findall(r"\w+", "\n".join(texts)))
    assert set(bartack.__all__) - words == {"__version__"}
    assert len(bartack.__all__) <= 75


def test_provider_guide_lists_every_vendor_with_its_format_and_key() -> None:
    """003-8.2.4"""
    rows = re.findall(r"^\| `([^|]+)` \| `([^|]+)` \| ([^|]+) \|$", text_of(DOCS / "guides/providers.md"), re.MULTILINE)
    assert {name: (format, tuple(re.findall(r"`(\w+)`", keys))) for name, format, keys in rows} == {
        name: (row.format, row.key_names) for name, row in VENDORS.items()
    }


def test_reference_shows_each_module_once() -> None:
    modules = [
        name for page in (DOCS / "reference").glob("*.md") for name in re.findall(r"^::: (\S+)$", text_of(page), re.M)
    ]
    assert len(modules) == len(set(modules))
    for name in modules:
        import_module(name)


# -- the site

# One worker builds the site for all of these tests.
built_once = pytest.mark.xdist_group("site")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built strictly: a broken link or anchor, or a page outside the navigation, is an error."""
    if find_spec("mkdocs") is None or find_spec("mkdocstrings") is None:
        pytest.skip("mkdocs is not installed")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


@built_once
def test_site_has_every_page(site: Path) -> None:
    names = [page.relative_to(DOCS).with_suffix("") for page in DOCS.rglob("*.md")]
    places = [name.parent if name.name == "index" else name for name in names]
    assert [place for place in places if not (site / place / "index.html").is_file()] == []


@built_once
def test_site_loads_nothing_from_other_hosts(site: Path) -> None:
    loads = re.compile(
        r"<(?:script|img|iframe)[^>]+src=[\"']?(?:https?:)?//|<link[^>]+stylesheet[^>]+href=[\"']?(?:https?:)?//"
    )
    draws = re.compile(r"class=[\"']?mermaid")  # the theme renders these with a script from another host
    pages = list(site.rglob("*.html"))
    assert pages
    loading = [page for page in pages if (text := text_of(page)) and (loads.search(text) or draws.search(text))]
    assert loading == []


@built_once
def test_site_shows_the_diagrams_as_tables(site: Path) -> None:
    page = text_of(site / "architecture" / "index.html")
    assert page.count("<th>state</th>") == 4
    assert "stateDiagram" not in page


@built_once
def test_reference_shows_signatures_and_the_meaning_of_fields(site: Path) -> None:
    page = re.sub(r"<[^>]+>", "", text_of(site / "reference" / "conversation" / "index.html"))
    assert "written by a program" in page
    assert re.search(r"Text\(\s*text: str,\s*\*,", page)
