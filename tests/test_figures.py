"""lab/figures.py counts correctly, in small samples."""

from textwrap import dedent, indent

from lab.figures import Module, figures, percentile, repeated_lines

SAMPLE = Module(
    dedent(
        '''\
        """A docstring
        of two lines, and one that is blank:

        """

        import pkg.other  # an import with a comment
        from pkg import third
        from pkg.fourth import value

        LIMIT = 3
        """The string below an attribute."""

        # a comment of its own
        def outer(given, count):
            """Explains."""
            text = """a string
            of two lines"""

            def inner():
                return given  # the parameter is vague, this use is not

            found, entries = inner(), [one for one in text]
            return found
        '''
    )
)
REPEATED = "a = 1\nb = 2\n\n# comment\nc = 3\nd = 4\ne = 5\nf = 6\n"


def test_code_is_counted_without_blank_lines_comments_and_docstrings() -> None:
    assert [SAMPLE.text(line) for line in sorted(SAMPLE.code_lines)] == [
        "import pkg.other  # an import with a comment",
        "from pkg import third",
        "from pkg.fourth import value",
        "LIMIT = 3",
        "def outer(given, count):",
        'text = """a string',
        'of two lines"""',
        "def inner():",
        "return given  # the parameter is vague, this use is not",
        "found, entries = inner(), [one for one in text]",
        "return found",
    ]


def test_explanation_is_every_line_of_a_docstring_or_with_a_comment() -> None:
    assert [SAMPLE.text(line) for line in sorted(SAMPLE.explanation_lines)] == [
        '"""A docstring',
        "of two lines, and one that is blank:",
        '"""',
        "import pkg.other  # an import with a comment",
        '"""The string below an attribute."""',
        "# a comment of its own",
        '"""Explains."""',
        "return given  # the parameter is vague, this use is not",
    ]


def test_a_function_is_as_long_as_its_code() -> None:
    assert sorted(SAMPLE.function_lengths()) == [2, 7]


def test_imports_of_own_modules_are_found_in_every_form() -> None:
    own = ["pkg", "pkg.other", "pkg.third", "pkg.fourth", "pkg.fifth"]
    assert SAMPLE.imported_modules(own) == {"pkg.other", "pkg.third", "pkg.fourth"}


def test_names_are_vague_where_they_are_assigned() -> None:
    assert sorted(SAMPLE.vague_names()) == ["found", "given", "one"]


def test_six_equal_lines_of_code_are_repeated_whatever_is_between_them() -> None:
    modules = {
        "whole": Module(REPEATED),
        "indented": Module("if x:\n" + indent(REPEATED.replace("\n\n", "\n"), "    ")),
        "five": Module(REPEATED.replace("f = 6", "f = 7")),
    }
    assert repeated_lines(modules) == {"whole": {1, 2, 5, 6, 7, 8}, "indented": {2, 3, 5, 6, 7, 8}, "five": set()}


def test_equal_imports_are_not_repeated_lines() -> None:
    imports = Module("".join(f"import module_{number}\n" for number in range(8)))
    assert repeated_lines({"first": imports, "second": imports}) == {"first": set(), "second": set()}


def test_a_percentile_is_one_of_the_values() -> None:
    assert [percentile([5, 1, 4, 2, 3], share) for share in (1, 50, 90, 100)] == [1, 3, 5, 5]


def test_the_table_has_each_measure() -> None:
    measures = dict(figures({"pkg.sample": SAMPLE}, ["pkg.other"], {"pkg.sample": {5, 6}}))
    assert measures["files"] == "1"
    assert measures["lines of code"] == "11"
    assert measures["comments and docstrings"] == "47.1 %"
    assert measures["functions over 50 lines"] == "0"
    assert measures["lines in repeated runs of 6 or more"] == "2"
