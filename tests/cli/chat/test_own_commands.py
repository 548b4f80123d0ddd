"""Commands of the chat that reach outside it: to files, the editor, the clipboard and the browser; and chats for
screen readers."""

import base64
import re
import socket
import urllib.request
from pathlib import Path
from typing import Any

from tests.cli.chat.scene import scene, writes
from tests.cli.chat.terminal import Terminal, is_asking, needs_tmux

pytestmark = needs_tmux

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def program(folder: Path, name: str, script: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


def command(word: str) -> dict[str, Any]:
    return {"call": "run_command", "arguments": {"command": word}}


def allow(chat: Terminal, choice: str) -> None:
    chat.wait_for(is_asking)
    chat.say("a")
    chat.wait_for(lambda screen: screen.rstrip().endswith("to go back:"))
    chat.say(choice)


def is_free(port: int) -> bool:
    """Whether nothing listens on this port."""
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) != 0


def test_images_and_dropped_files_are_attached(tmp_path: Path) -> None:
    with scene(tmp_path, ["Seen."]) as here:
        (tmp_path / "picture.png").write_bytes(PNG)
        program(tmp_path / "bin", "xclip", f"cat '{tmp_path}/picture.png'")
        (here.project / "my notes.txt").write_text("mine\n")
        (here.project / "other.txt").write_text("other\n")
        path = f"{tmp_path / 'bin'}:{here.env['PATH']}"
        with here.chat(columns=80, rows=24, PATH=path) as chat:
            chat.wait_for_prompt()
            chat.key("C-v")
            chat.wait_for(".png")
            chat.say(" what is it?")
            chat.wait_for("Seen.")
            chat.wait_for_prompt()
            image = here.messages()[-1]["content"][-1]["image_url"]["url"]
            assert image == f"data:image/png;base64,{base64.b64encode(PNG).decode()}"
            chat.say("/paste")
            chat.wait_for(lambda screen: screen.count(".png") == 3)
            chat.key("C-u")
            chat.paste(f"'{here.project}/my notes.txt' {here.project}/other.txt ")
            chat.wait_for('› @"my notes.txt" @other.txt')
            chat.say(" compare them")
            chat.wait_for("Attached: my notes.txt, other.txt")
            chat.wait_for_prompt()
            sent = str(here.messages()[-1]["content"])
            assert "my notes.txt:\nmine" in sent
            assert "other.txt:\nother" in sent
            chat.paste("/no/such/file")  # other text is pasted as it is
            chat.wait_for("› /no/such/file")


def test_permissions_are_edited_and_removed(tmp_path: Path) -> None:
    script = ([command("true 1")], [command("true 2")], ["Ran."], [command("true 1")], ["Not run."])
    with scene(tmp_path, *script) as here:
        program(tmp_path / "bin", "own-editor", "sed -i 's/true 1/true 11/' \"$1\"")
        path = f"{tmp_path / 'bin'}:{here.env['PATH']}"
        with here.chat(columns=60, rows=24, PATH=path, EDITOR="own-editor") as chat:
            chat.wait_for_prompt()
            chat.say("run both")
            allow(chat, "1p")
            chat.wait_for(lambda screen: is_asking(screen) and "true 2" in screen)
            allow(chat, "1")
            chat.wait_for("Ran.")
            chat.wait_for_prompt()
            chat.say("/permissions")
            seen = chat.wait_for("File: ")
            assert re.search(r"1 +always here +.*true 1\n", seen)
            assert re.search(r"2 +this chat +.*true 2\n", seen)
            chat.wait_for_prompt()
            chat.say("/permissions remove 2")
            chat.wait_for("Removed: ")
            chat.wait_for_prompt()
            chat.say("/permissions remove 2")
            chat.wait_for("/permissions remove NUMBER")
            chat.wait_for_prompt()
            chat.say("/permissions edit")
            chat.wait_for_prompt()
            (kept,) = Path(here.env["XDG_CONFIG_HOME"], "bartack", "permissions").iterdir()
            chat.wait_for(lambda screen: "true 11" in kept.read_text())
            chat.say("run it again")  # the edited rule covers another command
            chat.wait_for(is_asking)
            chat.say("n")
            chat.wait_for("Not run.")


def test_sessions_are_renamed_deleted_restored_and_inspected(tmp_path: Path) -> None:
    script = (
        ["Hello."],
        [writes("notes.txt", "theirs\n")],
        ["Written."],
        [writes("AGENTS.md", "Be kind.\n")],
        ["Made."],
    )
    with scene(tmp_path, *script) as here:
        (here.project / "notes.txt").write_text("mine\n")
        program(tmp_path / "bin", "own-browser", f"echo \"$1\" > '{tmp_path}/opened'")
        with here.chat(columns=120, rows=35, BROWSER=f"{tmp_path}/bin/own-browser %s") as chat:
            chat.wait_for_prompt()
            chat.say("/rename Too early")
            chat.wait_for("Send a message first")
            chat.wait_for_prompt()
            chat.say("first of all")
            chat.wait_for("Hello.")
            chat.wait_for_prompt()
            chat.say("/rename Zebra crossing")
            chat.wait_for("Renamed to: Zebra crossing")
            chat.wait_for_prompt()
            chat.say("/delete")
            chat.wait_for("/delete SESSION permanently removes")
            chat.wait_for_prompt()
            session = here.bartack("sessions", "list").splitlines()[-1].split()[0]
            assert "Zebra crossing" in here.bartack("sessions", "search", "zebra")
            chat.say(f"/delete {session}")
            chat.wait_for("This is the current session.")
            chat.wait_for_prompt()
            chat.say("/new")
            chat.wait_for("starts a new session")
            chat.wait_for_prompt()
            chat.say("write it")
            chat.wait_for(is_asking)
            chat.say("y")
            chat.wait_for("Written.")
            chat.wait_for_prompt()
            chat.say("/restore 1")
            chat.wait_for("Restored: notes.txt.")
            assert (here.project / "notes.txt").read_text() == "mine\n"
            chat.wait_for_prompt()
            chat.say(f"/delete {session}")
            chat.wait_for("Permanently remove Zebra crossing? [y/n]:")
            chat.say("y")
            chat.wait_for("Removed.")
            chat.wait_for_prompt()
            assert "Zebra" not in here.bartack("sessions", "list")
            chat.say("/init")
            chat.wait_for(lambda screen: is_asking(screen) and "AGENTS.md  new file, 1 line" in screen)
            chat.say("y")
            chat.wait_for("Made.")
            chat.wait_for_prompt()
            assert (here.project / "AGENTS.md").read_text() == "Be kind.\n"
            chat.say("/inspect")
            chat.wait_for("Open http://127.0.0.1:")
            chat.wait_for(lambda screen: (tmp_path / "opened").is_file() and bool((tmp_path / "opened").read_text()))
            url = (tmp_path / "opened").read_text().strip()
            with urllib.request.urlopen(url, timeout=60) as page:
                assert "<title>" in page.read().decode()
            chat.kill()
            port = int(url.partition("127.0.0.1:")[2].partition("/")[0])
            chat.wait_for(lambda _: is_free(port))  # the server of the page has ended with the chat


def test_a_screen_reader_gets_words_instead_of_symbols(tmp_path: Path) -> None:
    script = ([writes("notes.txt", "new\n"), command("exit 3")], ["**All** done."])
    with scene(tmp_path, *script) as here, here.chat("--display", "screen-reader", columns=80, rows=24) as chat:
        chat.wait_for_prompt()
        chat.say("write it")
        chat.wait_for(is_asking)
        chat.say("y")
        chat.wait_for(lambda screen: is_asking(screen) and "exit 3" in screen)
        chat.say("y")
        chat.wait_for("**All** done.")
        seen = chat.wait_for_prompt()
        assert "Approval needed: write_file" in seen
        assert '[run_command command="exit 3" failed, exit code 3' in seen  # and the time, if it took long
        assert seen.rstrip().splitlines()[-1].rstrip() == "You:"
        assert not re.search("[✓✗→›▌•⠋]", seen)
