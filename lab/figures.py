"""Measure the source of each package, and write the table into docs/architecture.md.

    python -m lab.figures

- A line of code has a token other than a comment and is not part of a docstring. Blank lines do not count anywhere.
- The share of explanation is that of lines with a comment, or in a docstring, among all that are not blank.
- The length of a function is its lines of code, with those of functions inside it.
- The fan-out of a module is the number of our own modules that it imports, at any place.
- A vague name is that of a variable or parameter, and one of VAGUE: it does not tell what it holds. It is counted where
  it is assigned, per 1,000 lines that are not blank.
- A repeated line is one of at least six lines of code in a row that occur again elsewhere; imports do not count.
"""

import ast
import io
import re
import statistics
import sys
import tokenize
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from lab.repository import PACKAGES, ROOT, fill_section

PAGE = ROOT / "docs" / "architecture.md"
VAGUE = frozenset(re.findall(r"\w+", "one found made known kept at told given about shown rest seen said taken held"))
RUN = 6  # lines
LONG = 50  # lines
_LAYOUT = (tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING, tokenize.ENDMARKER)
_DEFINITIONS = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass
class Module:
    """The source of one module, and what is counted in it."""

    source: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.source)

    @cached_property
    def docstring_lines(self) -> set[int]:
        """Strings that are statements: docstrings, and those below an attribute."""
        return {
            line
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
            for line in _lines(node)
        }

    @cached_property
    def _tokens(self) -> list[tokenize.TokenInfo]:
        return list(tokenize.generate_tokens(io.StringIO(self.source).readline))

    @cached_property
    def comment_lines(self) -> set[int]:
        return {token.start[0] for token in self._tokens if token.type == tokenize.COMMENT}

    @cached_property
    def code_lines(self) -> set[int]:
        tokens = (token for token in self._tokens if token.type not in (*_LAYOUT, tokenize.COMMENT))
        lines = {line for token in tokens for line in range(token.start[0], token.end[0] + 1)}
        return lines - self.docstring_lines

    @property
    def explanation_lines(self) -> set[int]:
        return {line for line in self.docstring_lines | self.comment_lines if self.text(line)}

    def text(self, line: int) -> str:
        return self._texts[line - 1]

    @cached_property
    def _texts(self) -> list[str]:
        return [text.strip() for text in self.source.split("\n")]

    def function_lengths(self) -> list[int]:
        functions = (node for node in ast.walk(self.tree) if isinstance(node, _DEFINITIONS))
        return [len(self.code_lines.intersection(_lines(function))) for function in functions]

    def imported_modules(self, own: Iterable[str]) -> set[str]:
        """Which of our own modules this one imports."""
        names: set[str] = set()
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                submodules = {f"{node.module}.{alias.name}" for alias in node.names}
                names |= submodules & set(own) or {node.module}
        return names & set(own)

    def vague_names(self) -> list[str]:
        stored = (node.id for node in ast.walk(self.tree) if isinstance(node, ast.Name) and _is_stored(node))
        parameters = (node.arg for node in ast.walk(self.tree) if isinstance(node, ast.arg))
        return [name for name in (*stored, *parameters) if name in VAGUE]

    def comparable_lines(self) -> list[int]:
        """The lines of code other than imports, in order."""
        imports = (node for node in ast.walk(self.tree) if isinstance(node, ast.Import | ast.ImportFrom))
        return sorted(self.code_lines.difference(*map(_lines, imports)))


def _lines(node: ast.stmt) -> range:
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def _is_stored(name: ast.Name) -> bool:
    return isinstance(name.ctx, ast.Store)


def repeated_lines(modules: Mapping[str, Module]) -> dict[str, set[int]]:
    """By module, the lines that are part of a run which occurs more than once."""
    places: dict[tuple[str, ...], list[tuple[str, Sequence[int]]]] = defaultdict(list)
    for name, module in modules.items():
        numbers = module.comparable_lines()
        for start in range(len(numbers) - RUN + 1):
            run = numbers[start : start + RUN]
            places[tuple(module.text(line) for line in run)].append((name, run))
    repeated: dict[str, set[int]] = {name: set() for name in modules}
    for copies in places.values():
        if len(copies) > 1:
            for name, copied in copies:
                repeated[name].update(copied)
    return repeated


def modules_in(folder: Path) -> dict[str, Module]:
    """The modules of an import package by their full names."""
    return {
        _module_name(path, folder): Module(path.read_text(encoding="utf-8")) for path in sorted(folder.rglob("*.py"))
    }


def _module_name(path: Path, folder: Path) -> str:
    return ".".join(path.relative_to(folder.parent).with_suffix("").parts).removesuffix(".__init__")


def figures(
    modules: Mapping[str, Module], own: Iterable[str], repeated: Mapping[str, set[int]]
) -> Iterator[tuple[str, str]]:
    """Each measure of these modules, with its name. `own` are the modules of all packages."""
    code = sum(len(module.code_lines) for module in modules.values())
    lines = sum(len(module.code_lines | module.explanation_lines) for module in modules.values())
    explanation = sum(len(module.explanation_lines) for module in modules.values())
    lengths = [length for module in modules.values() for length in module.function_lengths()]
    fan_out = [len(module.imported_modules(own) - {name}) for name, module in modules.items()]
    vague = sum(len(module.vague_names()) for module in modules.values())
    yield "files", f"{len(modules):,}"
    yield "lines of code", f"{code:,}"
    yield "comments and docstrings", f"{explanation / lines:.1%}".replace("%", " %")
    yield "functions", f"{len(lengths):,}"
    yield "lines of a function: median, 90th percentile", f"{statistics.median(lengths):.0f}, {percentile(lengths, 90)}"
    yield f"functions over {LONG} lines", f"{sum(length > LONG for length in lengths):,}"
    yield "own modules that a module imports: median, most", f"{statistics.median(fan_out):.0f}, {max(fan_out)}"
    yield "vague names per 1,000 lines", f"{1000 * vague / lines:.1f}"
    yield f"lines in repeated runs of {RUN} or more", f"{sum(len(repeated[name]) for name in modules):,}"


def percentile(values: Sequence[int], share: int) -> int:
    return sorted(values)[max(0, -(-len(values) * share // 100) - 1)]


def table() -> str:
    """The figures of each package and of all together, as Markdown."""
    packages = {name: modules_in(folder) for name, folder in PACKAGES.items()}
    everything = {name: module for modules in packages.values() for name, module in modules.items()}
    repeated = repeated_lines(everything)
    columns = [dict(figures(modules, everything, repeated)) for modules in (*packages.values(), everything)]
    rows = [["", *packages, "total"], ["---", *["---:"] * len(columns)]]
    rows += [[measure, *(column[measure] for column in columns)] for measure in columns[0]]
    return "\n".join(f"| {' | '.join(row)} |".replace("|  |", "| |") for row in rows)


def main() -> int:
    measured = table()
    print(measured)
    PAGE.write_text(fill_section(PAGE.read_text(encoding="utf-8"), "figures", measured), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
