"""Commands of the chat that reach outside it: to files, the editor, the clipboard and the browser; and chats for
screen readers."""

import base64
import re
import socket
import urllib.request
from pathlib import Path
from typing import Any

from tests.code.chat.scene import scene, writes
from tests.code.chat.terminal import Terminal, is_asking, needs_tmux

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


def test_commands_in_the_background_are_listed_killed_and_end_with_the_chat(tmp_path: Path) -> None:
    def job(number: int) -> dict[str, Any]:
        line = f"echo $$ > pid{number}; echo ready {number}; exec sleep 600"
        return {"call": "run_command", "arguments": {"command": line, "background": True, "unsandboxed": True}}

    poll = {"call": "check_job", "arguments": {"job": "job-1", "wait_ms": 500}}
    with scene(tmp_path, [job(1)], [job(2)], [poll], ["Both run."]) as stage, stage.chat("--mode", "yes") as chat:
        chat.wait_for_prompt()
        chat.say("start them")
        chat.wait_for("Both run.")
        chat.wait_for_prompt()
        assert "ready 1" in str(stage.messages()[-1]["content"])
        chat.say("/jobs")
        chat.wait_for("/jobs job-1 shows the end of its output")
        screen = chat.wait_for_prompt()
        assert re.search(r"job-1 +running +\d+ s +echo", screen)
        assert re.search(r"job-2 +running +\d+ s +echo", screen)
        chat.say("/jobs kill job-1")
        chat.wait_for("job-1: killed")
        chat.say("/jobs job-2")
        chat.wait_for("job-2: running")
        chat.wait_for_prompt()
        processes = [Path("/proc", (stage.project / f"pid{number}").read_text().strip()) for number in (1, 2)]
        assert [process.exists() for process in processes] == [False, True]
        chat.key("C-d")
        chat.wait_for("[left with 0]")
        assert not processes[1].exists()


def test_images_and_dropped_files_are_attached(tmp_path: Path) -> None:
    with scene(tmp_path, ["Seen."]) as stage:
        (tmp_path / "picture.png").write_bytes(PNG)
        program(tmp_path / "bin", "xclip", f"cat '{tmp_path}/picture.png'")
        (stage.project / "my notes.txt").write_text("mine\n")
        (stage.project / "other.txt").write_text("other\n")
        path = f"{tmp_path / 'bin'}:{stage.env['PATH']}"
        with stage.chat(columns=80, rows=24, PATH=path) as chat:
            chat.wait_for_prompt()
            chat.key("C-v")
            chat.wait_for(".png")
            chat.say(" what is it?")
            chat.wait_for("Seen.")
            chat.wait_for_prompt()
            image = stage.messages()[-1]["content"][-1]["image_url"]["url"]
            assert image == f"data:image/png;base64,{base64.b64encode(PNG).decode()}"
            chat.say("/paste")
            chat.wait_for(lambda screen: screen.count(".png") == 3)
            chat.key("C-u")
            chat.paste(f"'{stage.project}/my notes.txt' {stage.project}/other.txt ")
            chat.wait_for('› @"my notes.txt" @other.txt')
            chat.say(" compare them")
            chat.wait_for("Attached: my notes.txt, other.txt")
            chat.wait_for_prompt()
            request_text = str(stage.messages()[-1]["content"])
            assert "my notes.txt:\nmine" in request_text
            assert "other.txt:\nother" in request_text
            chat.paste("/no/such/file")  # other text is pasted as it is
            chat.wait_for("› /no/such/file")


def test_permissions_are_edited_and_removed(tmp_path: Path) -> None:
    script = ([command("true 1")], [command("true 2")], ["Ran."], [command("true 1")], ["Not run."])
    with scene(tmp_path, *script) as stage:
        program(tmp_path / "bin", "own-editor", "sed -i 's/true 1/true 11/' \"$1\"")
        path = f"{tmp_path / 'bin'}:{stage.env['PATH']}"
        with stage.chat(columns=60, rows=24, PATH=path, EDITOR="own-editor") as chat:
            chat.wait_for_prompt()
            chat.say("run both")
            allow(chat, "1p")
            chat.wait_for(lambda screen: is_asking(screen) and "true 2" in screen)
            allow(chat, "1")
            chat.wait_for("Ran.")
            chat.wait_for_prompt()
            chat.say("/permissions")
            screen_text = chat.wait_for("File: ")
            assert re.search(r"1 +always here +.*true 1\n", screen_text)
            assert re.search(r"2 +this chat +.*true 2\n", screen_text)
            chat.wait_for_prompt()
            chat.say("/permissions remove 2")
            chat.wait_for("Removed: ")
            chat.wait_for_prompt()
            chat.say("/permissions remove 2")
            chat.wait_for("/permissions remove NUMBER")
            chat.wait_for_prompt()
            chat.say("/permissions edit")
            chat.wait_for_prompt()
            (rules_file,) = Path(stage.env["XDG_CONFIG_HOME"], "bartack", "permissions").iterdir()
            chat.wait_for(lambda screen: "true 11" in rules_file.read_text())
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
    with scene(tmp_path, *script) as stage:
        (stage.project / "notes.txt").write_text("mine\n")
        program(tmp_path / "bin", "own-browser", f"echo \"$1\" > '{tmp_path}/opened'")
        with stage.chat(columns=120, rows=35, BROWSER=f"{tmp_path}/bin/own-browser %s") as chat:
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
            session = stage.bartack("sessions", "list").splitlines()[-1].split()[0]
            assert "Zebra crossing" in stage.bartack("sessions", "search", "zebra")
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
            assert (stage.project / "notes.txt").read_text() == "mine\n"
            chat.wait_for_prompt()
            chat.say(f"/delete {session}")
            chat.wait_for("Permanently remove Zebra crossing? [y/n]:")
            chat.say("y")
            chat.wait_for("Removed.")
            chat.wait_for_prompt()
            assert "Zebra" not in stage.bartack("sessions", "list")
            chat.say("/init")
            chat.wait_for(lambda screen: is_asking(screen) and "AGENTS.md  new file, 1 line" in screen)
            chat.say("y")
            chat.wait_for("Made.")
            chat.wait_for_prompt()
            assert (stage.project / "AGENTS.md").read_text() == "Be kind.\n"
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
    with scene(tmp_path, *script) as stage, stage.chat("--display", "screen-reader", columns=80, rows=24) as chat:
        chat.wait_for_prompt()
        chat.say("write it")
        chat.wait_for(is_asking)
        chat.say("y")
        chat.wait_for(lambda screen: is_asking(screen) and "exit 3" in screen)
        chat.say("y")
        chat.wait_for("**All** done.")
        screen_text = chat.wait_for_prompt()
        assert "Approval needed: write_file" in screen_text
        assert '[run_command command="exit 3" failed, exit code 3' in screen_text  # the time follows if it took long
        assert screen_text.rstrip().splitlines()[-1].rstrip() == "You:"
        assert not re.search("[✓✗→›▌•⠋]", screen_text)


def test_own_commands_have_a_terminal(tmp_path: Path) -> None:
    with scene(tmp_path, ["Seen."]) as stage, stage.chat(columns=60, rows=24) as chat:
        chat.wait_for_prompt()
        chat.say("!read -p 'Name: ' name; tput cols; echo Hello $name; test -t 1 && echo a terminal > /dev/tty")
        chat.wait_for(lambda screen: "\nName:" in screen)
        chat.resize(72, 20)
        chat.say("Ada")
        chat.wait_for("added to your next message")
        chat.wait_for_prompt()
        chat.say("!printf 'tick\\n'; sleep 600; echo never")
        chat.wait_for(lambda screen: "\ntick" in screen)
        chat.key("C-c")
        chat.wait_for("[killed by signal 2]")
        chat.wait_for_prompt()
        chat.say("!less /etc/passwd")
        chat.wait_for(lambda screen: screen.startswith("root:"))
        chat.type("q")
        chat.wait_for("is not added to your next message")
        chat.wait_for_prompt()
        chat.say("what happened?")
        chat.wait_for("Seen.")
        sent = str(stage.messages()[-1]["content"])
        assert "Name: Ada\n72\nHello Ada\na terminal" in sent.replace("\\n", "\n")
        assert "^C" in sent
        assert "[killed by signal 2]" in sent
        assert "root:" not in sent
        assert "\x1b" not in sent


def test_custom_commands_skills_and_sub_agents(tmp_path: Path) -> None:
    explore = {"call": "explore", "arguments": {"prompt": "Where is the moss?"}}
    search = {"call": "search_files", "arguments": {"pattern": "moss"}}
    script = (["Greeted."], [explore], [search], ["In plants.txt:1."], ["Explored."])
    with scene(tmp_path, *script) as stage:
        (stage.project / "plants.txt").write_text("moss\n")
        commands = stage.project / ".claude/commands"
        commands.mkdir(parents=True)
        (commands / "greet.md").write_text("---\ndescription: Greet someone\n---\nGreet $1 twice.")
        with stage.chat(columns=80, rows=24) as chat:
            chat.wait_for("Trust ")
            chat.say("y")
            chat.wait_for_prompt()
            chat.type("/gre")
            chat.wait_for("Greet someone")
            chat.say("et Ada")
            chat.wait_for("Greeted.")
            chat.wait_for_prompt()
            assert stage.user_texts()[-1] == "Greet Ada twice."
            names = {tool["function"]["name"] for tool in stage.server.requests[-1]["tools"]}
            assert {"explore", "task", "fetch", "update_plan"} <= names
            chat.say("find the moss")
            chat.wait_for("Explored.")
            screen_text = chat.wait_for_prompt()
            assert re.search(r"explore.*\n +.*search_files", screen_text)
            chat.say("/context")
            chat.wait_for("Coding prompt: version 2, long.")
            chat.wait_for_prompt()
            chat.key("C-d")
            chat.wait_for("[left with 0]")
        with stage.chat(columns=60, rows=20) as chat:  # trusted from now on
            chat.wait_for_prompt()
            chat.say("/help")
            chat.wait_for("/greet", scrolled=True)
