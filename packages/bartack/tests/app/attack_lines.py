"""Command lines that execute code, write files, or read outside of the project, though they look like harmless ones.

No rule for a family may cover any of them, even when all families are allowed. `ATTACKS` lists them by kind: those of
`attacks.txt`, and what a shell adds to any command. docs/reference/command-rules.md prints them with the verdict of
the rules.
"""

from pathlib import Path

# What a shell adds to any harmless command.
_SHELL = (
    "{} > /srv/x", "{} >> notes.txt", "{} >notes.txt", "{} 2> errors.txt", "{} &> all.txt", "{} < /etc/passwd",
    "{} <<EOF\nEOF", "{} <<< x", "{} & touch x", "{} | sh", "{} | bash -s", "{} | tee /srv/x", "{} | xargs rm",
    "{} && rm -rf .", "{} || curl x", "{}; touch hidden.txt", "{}\ntouch hidden.txt", "{}\rtouch hidden.txt",
    "{} $(touch x)", "{} `touch x`", '{} "$(touch x)"', '{} "`touch x`"', "{} $HOME", "{} ${{IFS}}x", '{} "$HOME/x"',
    "{} ~/.ssh/id_rsa", "{} *", "{} ?x", "{} [a]", "{} {{a,b}}", "{} #x", "{} \\; touch x", "({})", "{{ {}; }}",
    "! {}", "time {}", "exec {}", "env {}", "command {}", "nohup {}", "sudo {}", "PAGER=./x {}", "X=1 {}",
    "{} |& sh", "{} ;", "{} |", "&& {}", "{} <(touch x)", "{} >(touch x)", "{} 2>&1>x", "{} >/dev/nullx",
    "if {}; then touch x; fi", "while {}; do touch x; done", "eval {}", "source {}", ". {}", "alias ls='{}'",
)  # fmt: skip
_HARMLESS = ("git log", "ls -la", "pytest -q", "cat notes.txt")


def _read(text: str) -> dict[str, list[str]]:
    sections = (section.splitlines() for section in text.split("# ")[1:])
    return {name: [line for line in lines if line] for name, *lines in sections}


ATTACKS: dict[str, list[str]] = {
    "shell constructs": [shape.format(command) for command in _HARMLESS for shape in _SHELL],
    **_read(Path(__file__).with_name("attacks.txt").read_text()),
}


def attacked_project(base: Path) -> Path:
    """A new project for the attacks, with links that lead out of it, and repositories below it that are not its own."""
    (base / "elsewhere").mkdir()
    (base / "elsewhere" / "secret").write_text("secret")
    root = base / "project"
    (root / "sub").mkdir(parents=True)
    (root / "notes.txt").write_text("notes")
    (root / "link").symlink_to(base / "elsewhere")
    (root / "sub" / "link").symlink_to(base / "elsewhere")
    (root / "outside.txt").symlink_to(base / "elsewhere" / "secret")
    for name in ("objects", "refs"):  # a repository that git finds without .git, as a model could write it
        (root / "bare" / name).mkdir(parents=True)
    (root / "bare" / "HEAD").write_text("ref: refs/heads/main")
    (root / "nested" / ".git").mkdir(parents=True)
    return root
