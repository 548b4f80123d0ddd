"""How well a local model uses tools: does it find the right one, give the right arguments, and answer from the result?

Requests as people type them into a chat inside of a project folder, each with what should happen. Prompts were chosen
with the requests for `tuning`. The `fresh` ones were written before that, but are not quite unseen: their counts showed
that an earlier handicap of plain talk was too strong, which more tuning requests then confirmed. Answers have one seed
each; another wording of the same prompt moves "result used" by one or two. Two sets of tools: those of
`bartack.tools.file_tools()`, and three others. Nothing is run: a call gets the result that stands beside it here.

    python -m bench.local_router [name of a local model] [--misses]
"""

import asyncio
import resource
import sys
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from typing import NamedTuple

from bartack import Message, MessageAssembler, TextDelta, ToolCall, ToolResult, ToolSpec, assistant, tool_message, user
from bartack.models import LocalModel
from bartack.testing import check_stream
from bartack.tools import file_tools

OBJECT = {"type": "object", "additionalProperties": False}
TEXT = {"type": "string"}
FILE_TOOLS = tuple(tool.spec for tool in file_tools())
SHOP_TOOLS = (
    ToolSpec(
        "stock_level",
        {**OBJECT, "properties": {"item": TEXT}, "required": ["item"]},
        description="How many pieces of an item are in stock.",
    ),
    ToolSpec(
        "opening_hours",
        {**OBJECT, "properties": {"day": TEXT}, "required": ["day"]},
        description="When the shop opens and closes on a day.",
    ),
    ToolSpec(
        "send_note",
        {**OBJECT, "properties": {"to": TEXT, "text": TEXT}, "required": ["to", "text"]},
        description="Send a short note to a colleague.",
    ),
)


class Wish(NamedTuple):
    """A request, the tools that would be right (none for plain talk), what must stand in which argument, and what the
    tool gives with the word that the answer must then have."""

    said: str
    tools: str = ""
    arguments: Mapping[str, str] = {}
    result: str = ""
    fact: str = ""
    before: Sequence[Message] = ()


READ_NOTES = (
    user("what is in notes.txt?"),
    assistant(ToolCall("c1", "read_file", {"path": "notes.txt"})),
    tool_message(ToolResult("c1", "1\tbuy milk\n2\tcall Ann\n3\tpay rent")),
    assistant("notes.txt has three lines: buy milk, call Ann, and pay rent."),
)
LISTED = (
    user("list the files"),
    assistant(ToolCall("c1", "list_files", {})),
    tool_message(ToolResult("c1", "setup.py\nshop.py\nREADME.md")),
    assistant("There are setup.py, shop.py and README.md."),
)
STOCK = (
    user("how many lamps do we have?"),
    assistant(ToolCall("c1", "stock_level", {"item": "lamp"})),
    tool_message(ToolResult("c1", "14")),
    assistant("There are 14 lamps in stock."),
)

FILES_TUNING = (
    Wish("list the files here", "list_files", {}, "Makefile\nturbine.py\nREADME.md", "turbine"),
    Wish("what is in README.md?", "read_file", {"path": "README.md"}, "# Kestrel\nA small web server for maps.", "map"),
    Wish(
        "create hello.txt with the text good morning",
        "write_file",
        {"path": "hello.txt", "text": "good morning"},
        "wrote hello.txt (12 characters)",
        "hello.txt",
    ),
    Wish("run the tests", "run_command", {"command": "test"}, "exit status 0\n37 passed in 2.1s", "37"),
    Wish(
        "find where parse_config is defined",
        "search_files",
        {"pattern": "parse_config"},
        "src/settings.py:42:def parse_config(text):",
        "settings.py",
    ),
    Wish("which files are in the src folder?", "list_files", {"path": "src"}, "alpha.py\nbeta.py", "alpha.py"),
    Wish("show me main.py", "read_file", {"path": "main.py"}, "print('quokka')", "quokka"),
    Wish(
        "change the port in config.ini from 80 to 8080",
        "edit_file",
        {"path": "config.ini", "new": "8080"},
        "replaced 1 place in config.ini",
        "config.ini",
    ),
    Wish(
        "search for TODO in the code", "search_files", {"pattern": "TODO"}, "app.py:7:# TODO: close the file", "app.py"
    ),
    Wish("run git status", "run_command", {"command": "git status"}, "On branch heron, nothing to commit", "heron"),
    Wish(
        "summarise notes.md for me",
        "read_file",
        {"path": "notes.md"},
        "Meeting moved to Thursday. Bring the budget.",
        "Thursday",
    ),
    Wish(
        "write a python script add.py that adds two numbers",
        "write_file",
        {"path": "add.py", "text": "+"},
        "wrote add.py (80 characters)",
        "add.py",
    ),
    Wish(
        "now delete the second line of it",
        "edit_file write_file",
        {"path": "notes.txt"},
        "replaced 1 place in notes.txt",
        "",
        READ_NOTES,
    ),
    Wish("and what does shop.py do?", "read_file", {"path": "shop.py"}, "# sells umbrellas", "umbrella", LISTED),
    Wish("thanks, that helped", before=READ_NOTES),
    Wish("hi"),
    Wish("explain recursion"),
    Wish("write me a haiku"),
    Wish("thanks"),
    Wish("what is 2+2?"),
    Wish("who are you?"),
    Wish("how do I reverse a list in Python?"),
    Wish("tell me a joke"),
    Wish("what is the difference between a list and a tuple?"),
    Wish("list everything below tests", "list_files", {"path": "tests"}),
    Wish("are there any python files here?", "list_files search_files"),
    Wish("cat requirements.txt", "read_file run_command"),
    Wish("what is the version in setup.py?", "read_file search_files", {"path": "setup.py"}),
    Wish("look at server.js and explain it", "read_file", {"path": "server.js"}),
    Wish("please read CHANGELOG.md", "read_file", {"path": "CHANGELOG.md"}),
    Wish("make a new file notes/ideas.md with a list of three ideas", "write_file", {"path": "notes/ideas.md"}),
    Wish("put the words to be done into plan.txt", "write_file", {"path": "plan.txt", "text": "to be done"}),
    Wish("fix the typo teh in guide.md", "edit_file", {"path": "guide.md", "old": "teh", "new": "the"}),
    Wish("set debug to false in settings.json", "edit_file", {"path": "settings.json", "new": "false"}),
    Wish("which file uses the requests library?", "search_files", {"pattern": "requests"}),
    Wish("look for deprecated in lib", "search_files", {"pattern": "deprecated"}),
    Wish("start the linter", "run_command"),
    Wish("install the dependencies with pip", "run_command", {"command": "pip"}),
    Wish("how much disk space is free? use df", "run_command", {"command": "df"}),
    Wish("good morning"),
    Wish("what is a closure?"),
    Wish("compare SQL and NoSQL databases"),
    Wish("tell me about yourself"),
    Wish("translate good night to French"),
    Wish("what does the command chmod do?"),
    Wish("show me an example of a for loop in C"),
    Wish("how can I list files in bash?"),
    Wish("is Rust faster than Go?"),
    Wish("sounds good, thanks", before=LISTED),
    Wish("what do you think about it?", before=READ_NOTES),
    Wish("nice"),
    Wish("see you tomorrow"),
    Wish("how does TCP work?"),
    Wish("what is the tallest mountain?"),
    Wish("write a limerick about bees"),
    Wish("give me an idea for a birthday present"),
    Wish("when was Unix invented?"),
    Wish("how do I write to a file in Go?"),
    Wish("what is a Makefile good for?"),
    Wish("are you a person?"),
)
FILES_FRESH = (
    Wish("ls", "list_files run_command", {}, "pelican.txt\nsetup.cfg", "pelican"),
    Wish("what's in this directory?", "list_files", {}, "orchid.md\nrun.sh", "orchid"),
    Wish("open pyproject.toml", "read_file", {"path": "pyproject.toml"}, '[project]\nname = "marlin"', "marlin"),
    Wish("what does utils.py contain?", "read_file", {"path": "utils.py"}, "def slug(text): ...", "slug"),
    Wish(
        "read the file docs/setup.md and tell me how to install it",
        "read_file",
        {"path": "docs/setup.md"},
        "Install with: make walnut",
        "walnut",
    ),
    Wish(
        "make a file called todo.txt that says buy bread",
        "write_file",
        {"path": "todo.txt", "text": "buy bread"},
        "wrote todo.txt (9 characters)",
        "todo.txt",
    ),
    Wish(
        "save a hello world program as hello.py",
        "write_file",
        {"path": "hello.py", "text": "print"},
        "wrote hello.py (22 characters)",
        "hello.py",
    ),
    Wish(
        "rename the variable x to total in sum.py",
        "edit_file",
        {"path": "sum.py", "new": "total"},
        "replaced 1 place in sum.py",
        "sum.py",
    ),
    Wish(
        "in README.md replace Foo with Bar",
        "edit_file",
        {"path": "README.md", "old": "Foo", "new": "Bar"},
        "replaced 1 place in README.md",
        "README",
    ),
    Wish(
        "where is the class Parser used?",
        "search_files",
        {"pattern": "Parser"},
        "lib/heart.py:3:p = Parser()",
        "heart.py",
    ),
    Wish(
        "grep for password in all files", "search_files run_command", {}, "conf/login.ini:2:password = x", "login.ini"
    ),
    Wish("execute python --version", "run_command", {"command": "python --version"}, "Python 3.19.4", "3.19"),
    Wish("build the project with make", "run_command", {"command": "make"}, "exit status 0\nbuilt in 12 s", "built"),
    Wish(
        "and the last one, what is in it?", "read_file", {"path": "README.md"}, "All about ferrets.", "ferret", LISTED
    ),
    Wish(
        "replace Ann with Bob there",
        "edit_file",
        {"path": "notes.txt", "old": "Ann", "new": "Bob"},
        "replaced 1 place in notes.txt",
        "",
        READ_NOTES,
    ),
    Wish("which of these is the most urgent?", before=READ_NOTES),
    Wish("good evening!"),
    Wish("what can you do?"),
    Wish("explain how a hash table works"),
    Wish("write a short poem about autumn"),
    Wish("what is the capital of Norway?"),
    Wish("ok great, bye"),
    Wish("what does git rebase do?"),
    Wish("give me three names for a cat"),
    Wish("why is the sky blue?"),
    Wish("how do I open a file in Python?"),
)
SHOP_TUNING = (
    Wish("do we still have umbrellas?", "stock_level", {"item": "umbrella"}, "3 pieces", "3"),
    Wish("how many blue chairs are left?", "stock_level", {"item": "chair"}, "27 pieces", "27"),
    Wish("when do we open on Sunday?", "opening_hours", {"day": "Sunday"}, "11:00 to 16:30", "11"),
    Wish("tell Eve that the truck is late", "send_note", {"to": "Eve", "text": "truck"}, "sent at 10:42", ""),
    Wish("and chairs?", "stock_level", {"item": "chair"}, "27 pieces", "27", STOCK),
    Wish("hello there"),
    Wish("what is a lamp made of?"),
    Wish("write a slogan for our shop"),
    Wish("great, thank you", before=STOCK),
    Wish("are there enough pillows?", "stock_level", {"item": "pillow"}),
    Wish("how many mugs have we got", "stock_level", {"item": "mug"}),
    Wish("at what time do you close on Wednesday?", "opening_hours", {"day": "Wednesday"}),
    Wish("is the shop open on Saturdays?", "opening_hours", {"day": "Saturday"}),
    Wish("message Paul: the meeting is at 3", "send_note", {"to": "Paul", "text": "meeting"}),
    Wish("please inform Kim about the delay", "send_note", {"to": "Kim", "text": "delay"}),
    Wish("who invented the umbrella?"),
    Wish("tell me a story"),
    Wish("what does stock mean?"),
    Wish("good bye"),
    Wish("what is 7 minus 5?"),
    Wish("how do you feel?"),
    Wish("what is a colleague?"),
    Wish("define inflation"),
    Wish("oh, I see", before=STOCK),
    Wish("why do shops have sales?"),
)
SHOP_FRESH = (
    Wish("check the stock of candles", "stock_level", {"item": "candle"}, "116 pieces", "116"),
    Wish("is there any red paint?", "stock_level", {"item": "paint"}, "8 pieces", "8"),
    Wish("until when is the shop open on Friday?", "opening_hours", {"day": "Friday"}, "09:00 to 19:45", "19:45"),
    Wish("what are the hours tomorrow, Monday?", "opening_hours", {"day": "Monday"}, "closed all day", "closed"),
    Wish("send Tom a note: lunch at noon", "send_note", {"to": "Tom", "text": "noon"}, "sent at 11:03", ""),
    Wish("let Maria know that the order arrived", "send_note", {"to": "Maria", "text": "arrived"}, "sent at 09:17", ""),
    Wish("what about tables?", "stock_level", {"item": "table"}, "5 pieces", "5", STOCK),
    Wish("how are you today?"),
    Wish("what is 12 times 4?"),
    Wish("explain what a warehouse is"),
    Wish("that is not many", before=STOCK),
)
SETS = {
    "file tools, tuning": (FILE_TOOLS, FILES_TUNING),
    "file tools, fresh": (FILE_TOOLS, FILES_FRESH),
    "shop tools, tuning": (SHOP_TOOLS, SHOP_TUNING),
    "shop tools, fresh": (SHOP_TOOLS, SHOP_FRESH),
}


class Outcome(NamedTuple):
    """What became of one wish; None where the question does not arise."""

    tool: str  # that was called, or nothing
    arguments: dict[str, object] | None = None
    answer: str | None = None

    def is_right(self, wish: Wish) -> bool:
        """Whether the tool was the right one, or none was called for plain talk."""
        return self.tool in wish.tools.split() if wish.tools else not self.tool

    def has_arguments(self, wish: Wish) -> bool:
        """Whether every expected word is in its argument; a path has to be exactly the expected one."""
        said = {name: str(value).lower() for name, value in (self.arguments or {}).items()}
        path = said.get("path", "").removeprefix("./").rstrip("/")
        is_path = path == wish.arguments.get("path", path).lower()
        return is_path and all(word.lower() in said.get(name, "") for name, word in wish.arguments.items())

    def has_fact(self, wish: Wish) -> bool:
        """Whether the answer has the word that only the result could tell."""
        return wish.fact.lower() in (self.answer or "").lower()

    def is_good(self, wish: Wish) -> bool:
        """Whether nothing was wrong."""
        return self.is_right(wish) and (not wish.tools or (self.has_arguments(wish) and self.has_fact(wish)))


async def outcome_of(model: LocalModel, tools: Sequence[ToolSpec], wish: Wish) -> Outcome:
    """Ask, and answer a call with the result that belongs to it."""
    asked = [*wish.before, user(wish.said)]
    called = await first_message(model, asked, tools)
    if called is None:
        return Outcome("")
    call = called.tool_calls[0]
    if call.tool_name not in wish.tools.split() or not wish.fact:
        return Outcome(call.tool_name, call.arguments)
    done = [*asked, called, tool_message(ToolResult(call.tool_call_id, wish.result))]
    answer = (await check_stream(model, done, tool_specs=tools, max_tokens=120, seed=1)).message
    assert answer is not None
    return Outcome(call.tool_name, call.arguments, answer.text)


async def first_message(model: LocalModel, asked: Sequence[Message], tools: Sequence[ToolSpec]) -> Message | None:
    """The message with the call; None as soon as the model begins to talk."""
    assembler = MessageAssembler()
    async with aclosing(model.stream(asked, tools, max_tokens=300)) as stream:
        async for delta in stream:
            if isinstance(delta.delta, TextDelta):
                return None
            assembler.consume(delta)
    return assembler.build_final_message()


def row(name: str, wishes: Sequence[Wish], outcomes: Sequence[Outcome]) -> str:
    """A line of the table."""
    both = list(zip(wishes, outcomes, strict=True))
    tools = [(wish, one) for wish, one in both if wish.tools]
    found = [(wish, one) for wish, one in tools if one.is_right(wish)]
    plain = [(wish, one) for wish, one in both if not wish.tools]
    answers = [(wish, one) for wish, one in found if wish.fact]
    cells = (
        f"{len(found)}/{len(tools)}",
        f"{sum(one.is_right(wish) for wish, one in plain)}/{len(plain)}",
        f"{sum(one.has_arguments(wish) for wish, one in found)}/{len(found)}",
        f"{sum(one.has_fact(wish) for wish, one in answers)}/{len(answers)}",
    )
    return f"{name:20}" + "".join(f"{cell:>17}" for cell in cells)


async def main() -> None:
    """Print the table."""
    names = [word for word in sys.argv[1:] if not word.startswith("--")]
    model = LocalModel(names[0] if names else None)
    if not model.weights.path.is_file():
        print(f"needs weights: bartack models pull {model.weights.model_id}")
        return
    misses = []
    print(f"{'':20}{'tool found':>17}{'plain stayed':>17}{'arguments right':>17}{'result used':>17}")
    for name, (tools, wishes) in SETS.items():
        outcomes = [await outcome_of(model, tools, wish) for wish in wishes]
        print(row(name, wishes, outcomes), flush=True)
        for wish, one in zip(wishes, outcomes, strict=True):
            if not one.is_good(wish):
                misses.append(f"{name}: {wish.said!r} gave {one}")
    usage = resource.getrusage(resource.RUSAGE_SELF)
    print(f"{usage.ru_utime + usage.ru_stime:.0f} s of processor time with {model.weights.model_id}")
    if "--misses" in sys.argv:
        print(*misses, sep="\n")
    await model.aclose()


if __name__ == "__main__":
    asyncio.run(main())
