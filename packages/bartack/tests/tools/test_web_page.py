"""Reading web pages: what is returned, and which addresses are never contacted."""

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from aiohttp.abc import AbstractResolver, ResolveResult

from bartack import ToolError
from bartack.tools.html_markdown import markdown_of_html
from bartack.tools.tool_context import ToolContext
from bartack.tools.web_page import fetch_tool, is_public


class Names(AbstractResolver):
    """A name server whose answers are given, one after the other; the last one is repeated."""

    def __init__(self, **answers: list[list[str]]) -> None:
        self.answers = answers
        self.asked: list[str] = []

    async def resolve(self, host: str, port: int = 0, family: Any = socket.AF_INET) -> list[ResolveResult]:
        self.asked.append(host)
        rounds = self.answers[host.replace(".", "_")]
        addresses = rounds.pop(0) if len(rounds) > 1 else rounds[0]
        return [
            ResolveResult(hostname=host, host=address, port=port, family=socket.AF_INET, proto=0, flags=0)
            for address in addresses
        ]

    async def close(self) -> None:
        pass


class Site:
    """A server on the loopback interface that counts its requests."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        self.port = 0

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.paths.append(request.path)
        match request.path:
            case "/page":
                html = "<title>A site</title><body><h1>Top</h1><p>A <a href='/next'>link</a>.<script>x()</script>"
                return web.Response(text=html, content_type="text/html")
            case "/long":
                return web.Response(text="0123456789" * 5_000)
            case "/huge":
                return web.Response(text="x" * 6_000_000)
            case "/image":
                return web.Response(body=b"\x89PNG", content_type="image/png")
            case "/latin":
                return web.Response(body=b"caf\xe9", headers={"Content-Type": "text/plain; charset=latin-1"})
            case "/odd":
                return web.Response(body=b"text", headers={"Content-Type": "text/plain; charset=no-such"})
            case "/inward":
                raise web.HTTPFound(f"http://127.0.0.1:{self.port}/page")
            case "/loop":
                raise web.HTTPFound("/loop")
            case "/hop":
                raise web.HTTPMovedPermanently("/page")
        raise web.HTTPNotFound


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with _site() as running:
        yield running


@asynccontextmanager
async def _site() -> AsyncIterator[Site]:
    site = Site()
    app = web.Application()
    app.router.add_get("/{path:.*}", site.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    site.port = runner.addresses[0][1]
    yield site
    await runner.cleanup()


async def fetch(url: str, start: int = 0, **options: Any) -> str:
    output = await fetch_tool(**options).execute({"url": url, "start": start}, ToolContext())
    return str(output.content)


NAMES: dict[str, list[list[str]]] = {"site_test": [["127.0.0.1"]]}


async def test_a_page_is_markdown_with_absolute_links(site: Site) -> None:
    base = f"http://site.test:{site.port}"
    text = await fetch(f"{base}/hop", hosts=["site.test"], resolver=Names(**NAMES))
    assert text == f"# A site\n\n# Top\n\nA [link]({base}/next)."
    assert site.paths == ["/hop", "/page"]


async def test_a_long_page_is_read_in_parts(site: Site) -> None:
    url = f"http://site.test:{site.port}/long"
    options: Any = {"hosts": ["site.test"], "resolver": Names(**NAMES)}
    first = await fetch(url, **options)
    assert first.endswith("[25,000 more characters; continue with start=25000]")
    last = await fetch(url, start=25_000, **options)
    assert last == "0123456789" * 2_500


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("/huge", "larger than 5,000,000 bytes"),
        ("/image", "not text but image/png"),
        ("/none", "404 Not Found"),
        ("/loop", "more than 8 redirects"),
    ],
)
async def test_what_is_not_a_page_is_an_error(site: Site, path: str, problem: str) -> None:
    with pytest.raises(ToolError, match=problem):
        await fetch(f"http://site.test:{site.port}{path}", hosts=["site.test"], resolver=Names(**NAMES))


async def test_encodings_are_honoured_if_they_exist(site: Site) -> None:
    options: Any = {"hosts": ["site.test"], "resolver": Names(**NAMES)}
    assert await fetch(f"http://site.test:{site.port}/latin", **options) == "café"
    assert await fetch(f"http://site.test:{site.port}/odd", **options) == "text"


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:{port}/page", "http://127.1:{port}/page", "http://2130706433:{port}/page",
        "http://0x7f000001:{port}/page", "http://0:{port}/page", "http://localhost:{port}/page",
        "http://[::1]:{port}/page", "http://[::ffff:127.0.0.1]:{port}/page", "http://0177.0.0.1:{port}/page",
    ],
)  # fmt: skip
async def test_this_machine_is_not_reached_however_it_is_written(site: Site, url: str) -> None:
    with pytest.raises(ToolError):
        await fetch(url.format(port=site.port))
    assert site.paths == []


async def test_a_redirect_does_not_lead_inside(site: Site) -> None:
    with pytest.raises(ToolError, match=r"127\.0\.0\.1 is not a public address"):
        await fetch(f"http://site.test:{site.port}/inward", hosts=["site.test"], resolver=Names(**NAMES))
    assert site.paths == ["/inward"]


async def test_a_name_is_judged_by_the_address_that_is_connected_to(site: Site) -> None:
    """A name server that answers with a public address first and a private one later is asked once."""
    names = Names(rebind_test=[["93.184.216.34"], ["127.0.0.1"]], mixed_test=[["93.184.216.34", "127.0.0.1"]])
    names.answers["rebind_test"].pop(0)  # what a separate check would have seen
    with pytest.raises(ToolError, match=r"rebind\.test is not a public address"):
        await fetch(f"http://rebind.test:{site.port}/page", resolver=names)
    with pytest.raises(ToolError, match=r"mixed\.test is not a public address"):
        await fetch(f"http://mixed.test:{site.port}/page", resolver=names)
    assert names.asked == ["rebind.test", "mixed.test"]
    assert site.paths == []


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "ftp://a.example", "http://", "https://u:p@a.example/", "http://[x"]
)
async def test_only_plain_web_addresses_are_accepted(url: str) -> None:
    with pytest.raises(ToolError):
        await fetch(url)


def test_private_addresses_are_recognised_in_every_form() -> None:
    private = """
    127.0.0.1 10.1.2.3 172.16.0.1 192.168.1.1 169.254.169.254 100.64.0.1 0.0.0.0 224.0.0.1 255.255.255.255 240.0.0.1
    192.0.2.1 198.18.0.1 ::1 :: fe80::1 fe80::1%eth0 fc00::1 fd00::1 ff02::1 fec0::1 ::ffff:10.0.0.1 ::ffff:127.0.0.1
    64:ff9b::7f00:1 2002:7f00:1:: 2001:0:4136:e378:8000:63bf:3fff:fdd2 2001:db8::1 nonsense
    """.split()  # noqa: SIM905 - a list of words
    assert [address for address in private if is_public(address)] == []
    assert all(
        map(is_public, ["93.184.216.34", "1.1.1.1", "2606:4700:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"])
    )


def test_markup_becomes_markdown() -> None:
    html = """<html><head><title>Guide</title><style>p {}</style></head><body>
    <h2>Use</h2><p>Some <b>bold</b>,   <em>odd</em> and <code>code</code>.<br>Next</p>
    <ul><li>one<ul><li>deep</li></ul></li><li>two</li></ul><ol start=3><li>three</li><li>four</li></ol>
    <pre>def f():
    return  1</pre><blockquote>Quote</blockquote>
    <table><tr><th>a</th><th>b</th></tr><tr><td>1</td><td>2</td></tr></table>
    <img src=x alt="A cat"><hr><a href="javascript:x()">not a link</a> <a href="http://[">odd</a>&amp; &lt;tag&gt;
    <script>if (a < b) alert("</p>")</script><svg><text>drawing</text></svg></ul></a></pre></body>"""
    text = markdown_of_html(html, "https://a.example/")
    assert text.split("\n") == [
        "# Guide", "", "## Use", "", "Some **bold**, *odd* and `code`.", "Next", "", "- one", "  - deep", "- two", "",
        "3. three", "4. four", "", "```", "def f():", "    return  1", "```", "", "> Quote", "", "| a | b |",
        "| 1 | 2 |", "", "[image: A cat]", "", "---", "", "[not a link] [odd]& <tag>",
    ]  # fmt: skip
