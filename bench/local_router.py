"""How well a local model uses tools: whether it picks the right one, fills in its arguments and uses the result.

The requests are written as people type them into a chat in a project folder, each with what should happen. The prompts
were chosen with the `tuning` requests. The `fresh` ones were written before that, but are not entirely unseen: their
counts showed that an earlier handicap of plain talk was too strong, which more tuning requests then confirmed. Each
answer has one seed; another wording of the same prompt changes "result used" by one or two. There are two sets of
tools: `bartack.tools.file_tools()` and three others. No tool is run: a call gets the result listed with its request.

    python -m bench.local_router [name of a local model] [--misses]
"""

import asyncio
import resource
import sys
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from typing import NamedTuple

from bartack import Message, MessageAssembler, TextDelta, ToolCall, ToolResult, assistant, tool_message, user
from bartack.models import LocalModel
from bartack.models.local_tools import suited_tools
from bartack.nouns.config import ToolSpec
from bartack.testing import check_stream
from bartack.tools import file_tools

OBJECT = {"type": "object", "additionalProperties": False}
TEXT = {"type": "string"}
FILE_TOOLS = suited_tools([tool.spec for tool in file_tools()])
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


class Case(NamedTuple):
    """A request, the right tools (none for plain talk), the words expected in each argument, the result of the tool,
    and the word that the answer must then contain."""

    text: str
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
    Case("list the files here", "list_files", {}, "Makefile\nturbine.py\nREADME.md", "turbine"),
    Case("what is in README.md?", "read_file", {"path": "README.md"}, "# Kestrel\nA small web server for maps.", "map"),
    Case(
        "create hello.txt with the text good morning",
        "write_file",
        {"path": "hello.txt", "text": "good morning"},
        "wrote hello.txt (12 characters)",
        "hello.txt",
    ),
    Case("run the tests", "run_command", {"command": "test"}, "exit status 0\n37 passed in 2.1s", "37"),
    Case(
        "find where parse_config is defined",
        "search_files",
        {"pattern": "parse_config"},
        "src/settings.py:42:def parse_config(text):",
        "settings.py",
    ),
    Case("which files are in the src folder?", "list_files", {"path": "src"}, "alpha.py\nbeta.py", "alpha.py"),
    Case("show me main.py", "read_file", {"path": "main.py"}, "print('quokka')", "quokka"),
    Case(
        "change the port in config.ini from 80 to 8080",
        "edit_file",
        {"path": "config.ini", "new": "8080"},
        "replaced 1 place in config.ini",
        "config.ini",
    ),
    Case(
        "search for TODO in the code", "search_files", {"pattern": "TODO"}, "app.py:7:# TODO: close the file", "app.py"
    ),
    Case("run git status", "run_command", {"command": "git status"}, "On branch heron, nothing to commit", "heron"),
    Case(
        "summarise notes.md for me",
        "read_file",
        {"path": "notes.md"},
        "Meeting moved to Thursday. Bring the budget.",
        "Thursday",
    ),
    Case(
        "write a python script add.py that adds two numbers",
        "write_file",
        {"path": "add.py", "text": "+"},
        "wrote add.py (80 characters)",
        "add.py",
    ),
    Case(
        "now delete the second line of it",
        "edit_file write_file",
        {"path": "notes.txt"},
        "replaced 1 place in notes.txt",
        "",
        READ_NOTES,
    ),
    Case("and what does shop.py do?", "read_file", {"path": "shop.py"}, "# sells umbrellas", "umbrella", LISTED),
    Case("thanks, that helped", before=READ_NOTES),
    Case("hi"),
    Case("explain recursion"),
    Case("write me a haiku"),
    Case("thanks"),
    Case("what is 2+2?"),
    Case("who are you?"),
    Case("how do I reverse a list in Python?"),
    Case("tell me a joke"),
    Case("what is the difference between a list and a tuple?"),
    Case("list everything below tests", "list_files", {"path": "tests"}),
    Case("are there any python files here?", "list_files search_files"),
    Case("cat requirements.txt", "read_file run_command"),
    Case("what is the version in setup.py?", "read_file search_files", {"path": "setup.py"}),
    Case("look at server.js and explain it", "read_file", {"path": "server.js"}),
    Case("please read CHANGELOG.md", "read_file", {"path": "CHANGELOG.md"}),
    Case("make a new file notes/ideas.md with a list of three ideas", "write_file", {"path": "notes/ideas.md"}),
    Case("put the words to be done into plan.txt", "write_file", {"path": "plan.txt", "text": "to be done"}),
    Case("fix the typo teh in guide.md", "edit_file", {"path": "guide.md", "old": "teh", "new": "the"}),
    Case("set debug to false in settings.json", "edit_file", {"path": "settings.json", "new": "false"}),
    Case("which file uses the requests library?", "search_files", {"pattern": "requests"}),
    Case("look for deprecated in lib", "search_files", {"pattern": "deprecated"}),
    Case("start the linter", "run_command"),
    Case("install the dependencies with pip", "run_command", {"command": "pip"}),
    Case("how much disk space is free? use df", "run_command", {"command": "df"}),
    Case("good morning"),
    Case("what is a closure?"),
    Case("compare SQL and NoSQL databases"),
    Case("tell me about yourself"),
    Case("translate good night to French"),
    Case("what does the command chmod do?"),
    Case("show me an example of a for loop in C"),
    Case("how can I list files in bash?"),
    Case("is Rust faster than Go?"),
    Case("sounds good, thanks", before=LISTED),
    Case("what do you think about it?", before=READ_NOTES),
    Case("nice"),
    Case("see you tomorrow"),
    Case("how does TCP work?"),
    Case("what is the tallest mountain?"),
    Case("write a limerick about bees"),
    Case("give me an idea for a birthday present"),
    Case("when was Unix invented?"),
    Case("how do I write to a file in Go?"),
    Case("what is a Makefile good for?"),
    Case("are you a person?"),
)
FILES_FRESH = (
    Case("ls", "list_files run_command", {}, "pelican.txt\nsetup.cfg", "pelican"),
    Case("what's in this directory?", "list_files", {}, "orchid.md\nrun.sh", "orchid"),
    Case("open pyproject.toml", "read_file", {"path": "pyproject.toml"}, '[project]\nname = "marlin"', "marlin"),
    Case("what does utils.py contain?", "read_file", {"path": "utils.py"}, "def slug(text): ...", "slug"),
    Case(
        "read the file docs/setup.md and tell me how to install it",
        "read_file",
        {"path": "docs/setup.md"},
        "Install with: make walnut",
        "walnut",
    ),
    Case(
        "make a file called todo.txt that says buy bread",
        "write_file",
        {"path": "todo.txt", "text": "buy bread"},
        "wrote todo.txt (9 characters)",
        "todo.txt",
    ),
    Case(
        "save a hello world program as hello.py",
        "write_file",
        {"path": "hello.py", "text": "print"},
        "wrote hello.py (22 characters)",
        "hello.py",
    ),
    Case(
        "rename the variable x to total in sum.py",
        "edit_file",
        {"path": "sum.py", "new": "total"},
        "replaced 1 place in sum.py",
        "sum.py",
    ),
    Case(
        "in README.md replace Foo with Bar",
        "edit_file",
        {"path": "README.md", "old": "Foo", "new": "Bar"},
        "replaced 1 place in README.md",
        "README",
    ),
    Case(
        "where is the class Parser used?",
        "search_files",
        {"pattern": "Parser"},
        "lib/heart.py:3:p = Parser()",
        "heart.py",
    ),
    Case(
        "grep for password in all files", "search_files run_command", {}, "conf/login.ini:2:password = x", "login.ini"
    ),
    Case("execute python --version", "run_command", {"command": "python --version"}, "Python 3.19.4", "3.19"),
    Case("build the project with make", "run_command", {"command": "make"}, "exit status 0\nbuilt in 12 s", "built"),
    Case(
        "and the last one, what is in it?", "read_file", {"path": "README.md"}, "All about ferrets.", "ferret", LISTED
    ),
    Case(
        "replace Ann with Bob there",
        "edit_file",
        {"path": "notes.txt", "old": "Ann", "new": "Bob"},
        "replaced 1 place in notes.txt",
        "",
        READ_NOTES,
    ),
    Case("which of these is the most urgent?", before=READ_NOTES),
    Case("good evening!"),
    Case("what can you do?"),
    Case("explain how a hash table works"),
    Case("write a short poem about autumn"),
    Case("what is the capital of Norway?"),
    Case("ok great, bye"),
    Case("what does git rebase do?"),
    Case("give me three names for a cat"),
    Case("why is the sky blue?"),
    Case("how do I open a file in Python?"),
)
SHOP_TUNING = (
    Case("do we still have umbrellas?", "stock_level", {"item": "umbrella"}, "3 pieces", "3"),
    Case("how many blue chairs are left?", "stock_level", {"item": "chair"}, "27 pieces", "27"),
    Case("when do we open on Sunday?", "opening_hours", {"day": "Sunday"}, "11:00 to 16:30", "11"),
    Case("tell Eve that the truck is late", "send_note", {"to": "Eve", "text": "truck"}, "sent at 10:42", ""),
    Case("and chairs?", "stock_level", {"item": "chair"}, "27 pieces", "27", STOCK),
    Case("hello there"),
    Case("what is a lamp made of?"),
    Case("write a slogan for our shop"),
    Case("great, thank you", before=STOCK),
    Case("are there enough pillows?", "stock_level", {"item": "pillow"}),
    Case("how many mugs have we got", "stock_level", {"item": "mug"}),
    Case("at what time do you close on Wednesday?", "opening_hours", {"day": "Wednesday"}),
    Case("is the shop open on Saturdays?", "opening_hours", {"day": "Saturday"}),
    Case("message Paul: the meeting is at 3", "send_note", {"to": "Paul", "text": "meeting"}),
    Case("please inform Kim about the delay", "send_note", {"to": "Kim", "text": "delay"}),
    Case("who invented the umbrella?"),
    Case("tell me a story"),
    Case("what does stock mean?"),
    Case("good bye"),
    Case("what is 7 minus 5?"),
    Case("how do you feel?"),
    Case("what is a colleague?"),
    Case("define inflation"),
    Case("oh, I see", before=STOCK),
    Case("why do shops have sales?"),
)
SHOP_FRESH = (
    Case("check the stock of candles", "stock_level", {"item": "candle"}, "116 pieces", "116"),
    Case("is there any red paint?", "stock_level", {"item": "paint"}, "8 pieces", "8"),
    Case("until when is the shop open on Friday?", "opening_hours", {"day": "Friday"}, "09:00 to 19:45", "19:45"),
    Case("what are the hours tomorrow, Monday?", "opening_hours", {"day": "Monday"}, "closed all day", "closed"),
    Case("send Tom a note: lunch at noon", "send_note", {"to": "Tom", "text": "noon"}, "sent at 11:03", ""),
    Case("let Maria know that the order arrived", "send_note", {"to": "Maria", "text": "arrived"}, "sent at 09:17", ""),
    Case("what about tables?", "stock_level", {"item": "table"}, "5 pieces", "5", STOCK),
    Case("how are you today?"),
    Case("what is 12 times 4?"),
    Case("explain what a warehouse is"),
    Case("that is not many", before=STOCK),
)
SETS = {
    "file tools, tuning": (FILE_TOOLS, FILES_TUNING),
    "file tools, fresh": (FILE_TOOLS, FILES_FRESH),
    "shop tools, tuning": (SHOP_TOOLS, SHOP_TUNING),
    "shop tools, fresh": (SHOP_TOOLS, SHOP_FRESH),
}


REFUSED = "(refused)"


class Outcome(NamedTuple):
    """What the model did with one request."""

    tool: str  # the tool that was called, if any; REFUSED if the model would not even try
    arguments: dict[str, object] | None = None
    answer: str | None = None

    def is_right(self, case: Case) -> bool:
        """Whether the tool was the right one, or none was called for plain talk."""
        return self.tool in case.tools.split() if case.tools else not self.tool

    def has_arguments(self, case: Case) -> bool:
        """Whether every expected word is in its argument; a path has to be exactly the expected one."""
        values = {name: str(value).lower() for name, value in (self.arguments or {}).items()}
        path = values.get("path", "").removeprefix("./").rstrip("/")
        is_path = path == case.arguments.get("path", path).lower()
        return is_path and all(word.lower() in values.get(name, "") for name, word in case.arguments.items())

    def has_fact(self, case: Case) -> bool:
        """Whether the answer contains the word that is only in the result."""
        return case.fact.lower() in (self.answer or "").lower()

    def is_good(self, case: Case) -> bool:
        """Whether nothing was wrong."""
        return self.is_right(case) and (not case.tools or (self.has_arguments(case) and self.has_fact(case)))


async def outcome_of(model: LocalModel, tools: Sequence[ToolSpec], case: Case) -> Outcome:
    """Send a request, and its result if the model called a tool."""
    asked = [*case.before, user(case.text)]
    called = await first_message(model, asked, tools)
    if isinstance(called, str):
        return Outcome(REFUSED if "too hard for me" in called else "")
    call = called.tool_calls[0]
    if call.tool_name not in case.tools.split() or not case.fact:
        return Outcome(call.tool_name, call.arguments)
    done = [*asked, called, tool_message(ToolResult(call.tool_call_id, case.result))]
    answer = (await check_stream(model, done, tool_specs=tools, max_tokens=120, seed=1)).message
    assert answer is not None
    return Outcome(call.tool_name, call.arguments, answer.text)


async def first_message(model: LocalModel, asked: Sequence[Message], tools: Sequence[ToolSpec]) -> Message | str:
    """The message with the call; the beginning of the answer if the model answers in text."""
    assembler = MessageAssembler()
    async with aclosing(model.stream(asked, tools, max_tokens=300)) as stream:
        async for delta in stream:
            if isinstance(delta.delta, TextDelta):
                return delta.delta.text_delta
            assembler.consume(delta)
    return assembler.build_final_message()


def row(name: str, cases: Sequence[Case], outcomes: Sequence[Outcome]) -> str:
    """A row of the table."""
    pairs = list(zip(cases, outcomes, strict=True))
    tools = [(case, outcome) for case, outcome in pairs if case.tools]
    right = [(case, outcome) for case, outcome in tools if outcome.is_right(case)]
    plain = [(case, outcome) for case, outcome in pairs if not case.tools]
    answers = [(case, outcome) for case, outcome in right if case.fact]
    cells = (
        f"{len(right)}/{len(tools)}",
        f"{sum(outcome.is_right(case) for case, outcome in plain)}/{len(plain)}",
        f"{sum(outcome.has_arguments(case) for case, outcome in right)}/{len(right)}",
        f"{sum(outcome.has_fact(case) for case, outcome in answers)}/{len(answers)}",
    )
    return f"{name:20}" + "".join(f"{cell:>17}" for cell in cells)


async def main() -> None:
    """Print the table."""
    names = [word for word in sys.argv[1:] if not word.startswith("--")]
    model = LocalModel(names[0] if names else None)
    if not model.weights.path.is_file():
        print(f"{model.weights.model_id} is not downloaded. Run: bartack models pull {model.weights.model_id}")
        return
    misses = []
    print(f"{'':20}{'tool found':>17}{'plain stayed':>17}{'arguments right':>17}{'result used':>17}")
    for name, (tools, cases) in SETS.items():
        outcomes = [await outcome_of(model, tools, case) for case in cases]
        print(row(name, cases, outcomes), flush=True)
        for case, outcome in zip(cases, outcomes, strict=True):
            if not outcome.is_good(case):
                misses.append(f"{name}: {case.text!r} gave {outcome}")
    usage = resource.getrusage(resource.RUSAGE_SELF)
    print(f"{usage.ru_utime + usage.ru_stime:.0f} s of processor time with {model.weights.model_id}")
    if "--misses" in sys.argv:
        print(*misses, sep="\n")
    await model.aclose()


if __name__ == "__main__":
    asyncio.run(main())
