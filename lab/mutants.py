"""Break rules on purpose, check that the tests that cite them fail, and fill in the score in docs/spec.md.

    python -m lab.mutants [RULE-PREFIX ...] [--jobs N]

A mutant of lab/mutants.toml replaces one passage of one module, so that the rules it names no longer hold. For each
of its rules, the tests that cite the rule run in a copy of the repository. If one fails, the mutant is killed for this
rule. If all pass, it survives: these tests claim to check the rule and do not.

Status 1 if a mutant survives, if its passage is not found exactly once, or if the tests fail without any mutant. The
set is small and written by hand: at least one plausible mistake per rule, unless the rule is exempt because no change
of the code could break it. tests/test_mutants.py checks that all of them apply and that no rule is left out. The score
is written only after a run with all mutants.
"""

import argparse
import ast
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import tomllib
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count as count_from
from pathlib import Path
from queue import SimpleQueue

from lab.repository import ROOT, files_of_tests, fill_section, find_module, import_path

# -- rules and citations
#
# The rules of docs/spec.md, and the tests that cite them.
#
# A test cites a rule by its id in a docstring or comment (`000-5.3`), or at the start of its name, in lower case and
# with `_` for `-` and `.` (`test_003_br_05_...`). Used by tests/test_spec.py and lab/mutants.py.

SPEC = ROOT / "docs" / "spec.md"

# Anything shaped like an id, valid or not. A section alone ("000-5") and a range of documents ("000-004") are not.
MENTION = re.compile(r"(?<![\w.-])(?:0\d\d-(?:(?i:br)-\d+|[\w-]+(?:\.\d+)+)|[Dd]-\d+(?:\.\d+)+)(?![\w-]|\.\w)")
# A test whose name starts like this claims to test a rule.
_CLAIMING_NAME = re.compile(r"test_(00[0-4]_|d_\d)")
_RULE = re.compile(r"- \*\*(?P<id>[^*]+)\*\* \((?P<scope>\w+): (?P<places>[\w./, ]+)\) (?P<text>\S.*)")
_BOLD_START = re.compile(r"\s*[-*+|]\s*\*\*")  # a bullet or table row that starts in bold claims to be a rule
_HEADING = re.compile(r"## (?P<seed>\d{3}|D) ")


@dataclass(frozen=True)
class Rule:
    id: str
    scope: str
    places: tuple[str, ...]  # the files that implement it
    text: str
    seed: str  # the document under whose heading the rule is listed


@dataclass(frozen=True)
class Citation:
    rule_id: str  # as cited; there may be no such rule
    test: str | None  # the name of the test function, or None outside of one


def parse(spec: str) -> list[Rule]:
    """The rules in order; raises AssertionError for a bullet that starts in bold and is not a rule."""
    rules: list[Rule] = []
    seed = ""
    for bullet in re.sub(r"\n  (?=\S)", " ", spec).splitlines():
        if heading := _HEADING.match(bullet):
            seed = heading["seed"]
        if _BOLD_START.match(bullet):
            rule = _RULE.fullmatch(bullet)
            assert rule, f"not of the form '- **id** (scope: files) text': {bullet}"
            rules.append(Rule(rule["id"], rule["scope"], tuple(rule["places"].split(", ")), rule["text"], seed))
    return rules


def name_form(rule_id: str) -> str:
    """The id as written in a function name."""
    return re.sub(r"[-.]", "_", rule_id).lower()


def citations(source: str, rules: list[Rule]) -> Iterator[Citation]:
    """Every citation in the source of a test file, including ids of no rule."""
    if not MENTION.search(source) and not _CLAIMING_NAME.search(source):
        return
    tree = ast.parse(source)
    lines = source.splitlines()
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    tests = [function for function in functions if function.name.startswith("test_")]
    owner = {line: test.name for test in tests for line in _lines_of(test, lines)}
    for number, line in enumerate(lines, 1):
        for rule_id in MENTION.findall(line):
            yield Citation(rule_id, owner.get(number))
    ids = {name_form(rule.id): rule.id for rule in rules}
    for test in tests:
        if _CLAIMING_NAME.match(test.name):
            yield Citation(_cited_by_name(test.name, ids) or test.name, test.name)


def _lines_of(test: ast.FunctionDef | ast.AsyncFunctionDef, lines: list[str]) -> range:
    """The lines of a test, with its decorators and the comment directly above it."""
    first = min([test.lineno, *(decorator.lineno for decorator in test.decorator_list)])
    while first > 1 and lines[first - 2].startswith("#"):
        first -= 1
    return range(first, (test.end_lineno or first) + 1)


def _cited_by_name(name: str, ids: dict[str, str]) -> str | None:
    """The rule at the start of a test name; the longest id wins, so `000_5_10` is not `000_5`."""
    words = name.removeprefix("test_").split("_")
    heads = ("_".join(words[:length]) for length in range(len(words), 0, -1))
    return next((ids[head] for head in heads if head in ids), None)


# -- mutants

MUTANTS = ROOT / "lab" / "mutants.toml"

PYTEST = (sys.executable, "-m", "pytest", "-x", "-p", "no:cacheprovider", "-p", "no:randomly", "--no-header")
LIMIT_S = 240  # a mutant that makes the tests hang is killed, too


@dataclass(frozen=True)
class Mutant:
    rules: str  # ids, separated by spaces
    module: str
    old: str
    new: str

    def file(self, root: Path) -> Path:
        """The module in this copy of the repository."""
        return root / find_module(self.module).relative_to(ROOT)

    def applied(self, root: Path) -> str:
        """The module's text with the mutation; raises ValueError if the passage is not there exactly once."""
        text = self.file(root).read_text(encoding="utf-8")
        if (count := text.count(self.old)) != 1:
            raise ValueError(f"{self.rules}: found {count} times in {self.module}: {self.old!r}")
        return text.replace(self.old, self.new)


def mutants() -> list[Mutant]:
    """All mutants, in order."""
    return [Mutant(**row) for row in tomllib.loads(MUTANTS.read_text(encoding="utf-8"))["mutant"]]


def exemptions() -> dict[str, str]:
    """The rules that no mutant can break, each with the reason."""
    rows = tomllib.loads(MUTANTS.read_text(encoding="utf-8"))["exempt"]
    return {row["rule"]: row["reason"] for row in rows}


def score(cases: Sequence[tuple[Mutant, str]], survivors: Collection[tuple[Mutant, str]]) -> str:
    """The table for docs/spec.md: for each document, its rules, and how many of the mutants were noticed."""
    exempt = exemptions()
    lines = ["| document | rules | exempt | cases | killed |", "|---|---|---|---|---|"]
    rules = parse(SPEC.read_text(encoding="utf-8"))
    for name, prefix in [*((f"`{seed}`", seed) for seed in dict.fromkeys(rule.seed for rule in rules)), ("all", "")]:
        listed = [rule.id for rule in rules if rule.id.startswith(prefix)]
        chosen = [case for case in cases if case[1].startswith(prefix)]
        killed = sum(case not in survivors for case in chosen)
        counts = (len(listed), sum(rule in exempt for rule in listed), len(chosen), killed)
        lines.append(f"| {name} | {' | '.join(map(str, counts))} |")
    return "\n".join(lines)


def citing_tests() -> Mapping[str, set[str]]:
    """The tests that cite each rule, as pytest node ids.

    A citation outside a test function counts for every test of its file, and one in a shared module for the files that
    import the module.
    """
    rules = parse(SPEC.read_text(encoding="utf-8"))
    sources = {path: path.read_text(encoding="utf-8") for path in files_of_tests()}
    citing: dict[str, set[str]] = defaultdict(set)
    for path, source in sources.items():
        if path.name in ("test_spec.py", "test_mutants.py"):
            continue
        name = path.relative_to(ROOT).as_posix()
        for citation in citations(source, rules):
            if path.name.startswith("test_"):
                citing[citation.rule_id].add(name if citation.test is None else f"{name}::{citation.test}")
            else:
                citing[citation.rule_id].update(_importers(name, sources))
    return citing


def _importers(name: str, sources: Mapping[Path, str]) -> list[str]:
    """The test files that name this shared module."""
    module = re.compile(rf"\btests{re.escape(name.partition('tests')[2].removesuffix('.py').replace('/', '.'))}\b")
    return [
        path.relative_to(ROOT).as_posix()
        for path, text in sources.items()
        if path.name.startswith("test_") and module.search(text)
    ]


class Copies:
    """Copies of the repository, one for each job."""

    def __init__(self, folder: Path, count: int) -> None:
        listed = subprocess.run(
            ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT, check=True, capture_output=True, text=True,
        )  # fmt: skip
        self._free: SimpleQueue[Path] = SimpleQueue()
        self._times = count_from(1)  # a module's cached bytecode is valid for one modification time
        for number in range(count):
            root = folder / str(number)
            for name in listed.stdout.splitlines():
                if (ROOT / name).is_file():
                    (root / name).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy2(ROOT / name, root / name)
            self._free.put(root)

    def fails(self, tests: Iterable[str], mutant: Mutant | None = None) -> str | None:
        """The output of the tests if they fail with this mutant, else None."""
        root = self._free.get()
        try:
            if mutant is not None:
                file = mutant.file(root)
                original = file.read_text(encoding="utf-8")
                self._write(file, mutant.applied(root))
            environment = {**os.environ, "PYTHONPATH": import_path(root)}
            environment.pop("PYTHONDONTWRITEBYTECODE", None)  # compiling everything takes longer than most tests
            process = subprocess.Popen(
                [*PYTEST, *sorted(tests)],
                cwd=root,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,  # so that all of it can be killed, and a mutant cannot kill us
            )
            try:
                output, _ = process.communicate(timeout=LIMIT_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
                return "timed out"
            return output if process.returncode else None
        finally:
            if mutant is not None:
                self._write(file, original)
            self._free.put(root)

    def _write(self, file: Path, text: str) -> None:
        file.write_text(text, encoding="utf-8")
        time = next(self._times)
        os.utime(file, (time, time))


def main() -> int:
    options = argparse.ArgumentParser(
        description="Break rules on purpose, and check that the tests that cite them fail."
    )
    options.add_argument("prefix", nargs="*", help="only mutants of rules that start like this")
    options.add_argument(
        "--jobs", type=int, default=os.cpu_count(), help="tests to run at once (default: one per core)"
    )
    arguments = options.parse_args()
    cited = citing_tests()
    cases = [
        (mutant, rule)
        for mutant in mutants()
        for rule in mutant.rules.split()
        if not arguments.prefix or rule.startswith(tuple(arguments.prefix))
    ]
    for mutant, rule in cases:
        mutant.applied(ROOT)
        if not cited[rule]:
            raise ValueError(f"no test cites {rule}")
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(arguments.jobs) as pool:
        copies = Copies(Path(folder), arguments.jobs)
        for broken in pool.map(copies.fails, _by_file(test for _, rule in cases for test in cited[rule])):
            if broken is not None:
                print(broken, "The citing tests fail without any mutant.", sep="\n")
                return 1
        survivors: list[tuple[Mutant, str]] = []
        results = pool.map(lambda case: copies.fails(cited[case[1]], case[0]), cases)
        for (mutant, rule), output in zip(cases, results, strict=True):
            if output is None:
                survivors.append((mutant, rule))
                print(f"survived: {rule} with {mutant.new!r} in {mutant.module}", *sorted(cited[rule]), sep="\n    ")
    print(f"{len(cases) - len(survivors)} of {len(cases)} killed ({len({id(mutant) for mutant, _ in cases})} mutants).")
    if not arguments.prefix:
        page = SPEC.read_text(encoding="utf-8")
        SPEC.write_text(fill_section(page, "mutants", score(cases, survivors)), encoding="utf-8")
    return 1 if survivors else 0


def _by_file(tests: Iterable[str]) -> list[set[str]]:
    """The tests in groups that can run at the same time: those of one file together."""
    groups: dict[str, set[str]] = defaultdict(set)
    for test in tests:
        groups[test.partition("::")[0]].add(test)
    return list(groups.values())


if __name__ == "__main__":
    sys.exit(main())
