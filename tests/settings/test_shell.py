"""Words of shell scripts with their places."""

from __future__ import annotations

from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlhfdoctor.settings.shell import read_tokens


def words(script: str) -> list[str]:
    """The words of a script as the shell passes them."""
    return [token.text for token in read_tokens(script)]


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("", []),
        ("run --a 1", ["run", "--a", "1"]),
        ("run \\\n  --a 1 \\\n  --b", ["run", "--a", "1", "--b"]),
        ("run \\\r\n  --a 1\r\n", ["run", "--a", "1"]),
        ("run --a 1\\\n--b", ["run", "--a", "1", "--b"]),
        ("run 'a b' \"c d\"", ["run", "a b", "c d"]),
        ("run 'it'\"'\"'s'", ["run", "it's"]),
        ('run "say \\"hi\\""', ["run", 'say "hi"']),
        ("run '\\n $HOME'", ["run", "\\n $HOME"]),
        ("run a\\ b", ["run", "a b"]),
        ("run # --a 1\nnext", ["run", "next"]),
        ("# all of it", []),
        ("run a#b --c=#1", ["run", "a#b", "--c=#1"]),
        ("run '#no' \"#comment\"", ["run", "#no", "#comment"]),
        ("run --a 1 > log 2>&1 &", ["run", "--a", "1"]),
        ("a && b || c; d | e", ["a", "b", "c", "d", "e"]),
        ("(a b)", ["a", "b"]),
        ('run "" --b', ["run", "", "--b"]),
        ("run --x='' y", ["run", "--x=", "y"]),
        ("run 'a\nb' c", ["run", "a\nb", "c"]),
        ("unfinished 'quote", ["unfinished", "quote"]),
        ("trailing\\", ["trailing\\"]),
        ("run --a\t1", ["run", "--a", "1"]),
        ("run --a $'it\\'s\\n' --b", ["run", "--a", "it's\n", "--b"]),
        ('run --n $(echo "a ) b" | wc -c) --b', ["run", "--n", "$(echo a ) b | wc -c)", "--b"]),
        ('run --n "$(basename "/x/a b")" --b', ["run", "--n", "$(basename /x/a b)", "--b"]),
        ('run "costs $(5" --b', ["run", "costs $(5", "--b"]),
    ],
)
def test_words(script: str, expected: list[str]) -> None:
    """Quotes, escapes, comments, continuations and operators are read as the shell reads them."""
    assert words(script) == expected


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("BS=4\nrun --bs $BS", "4"),
        ("BS=4\nrun --bs ${BS}", "4"),
        ('BS=4\nrun --bs "${BS}"', "4"),
        ("BS=4\nrun --bs '${BS}'", "${BS}"),
        ("export BS=4\nrun --bs $BS", "4"),
        ("BS=4 OTHER=1 run --bs $BS", "4"),
        ("run --bs ${BS:-8}", "8"),
        ("BS=4\nrun --bs ${BS:-8}", "4"),
        ("BS=4\nBS=5\nrun --bs $BS", "5"),
        ("A=2\nBS=${A}x\nrun --bs $BS", "2x"),
        ("run --bs $BS", "$BS"),
        ("run --bs \\$BS", "$BS"),
        ("run --bs $1", "$1"),
        ("run --bs $(nproc --all)", "$(nproc --all)"),
        ("run bs=3 --bs $bs", "$bs"),
        ('BS="a b"\nrun --bs "$BS"', "a b"),
        ("BS=$(x)' b'\nrun --bs $BS", "$BS"),
        ("BS=\nrun --bs ${BS:-8}", "8"),
        ("BS='4'\r\nrun --bs $BS\r\n", "4"),
        ("N=${1:-8}\nrun --n $N", "8"),
        ('H=/m\nP=${P:-"${H}/Qwen2.5-7B"}\nrun --p ${P}/x', "/m/Qwen2.5-7B/x"),
        ("run --p ${P:-${Q:-3}}", "3"),
        ("run --p ${P:-$Q}x", "$Qx"),
        ("run --p ${P:-", "${P:-"),
        ("N=${1:-8}\nrun --n $((N))", "8"),
        ("N=8\nM=3\nrun --n $((N * 2 - ${M}))", "13"),
        ("N=7\nrun --n $(( (N+1)/2 ))", "4"),
        ("N=-7\nrun --n $((N / 2))", "-3"),
        ("N=-7\nrun --n $((N % 4))", "-3"),
        ('N=8\nrun --n "$((N))"', "8"),
        ("N=8\nrun --n x$((N))y", "x8y"),
        ("run --n $((N))", "$((N))"),
        ("N=$(nproc)\nrun --n $((N / 2))", "$((N / 2))"),
        ("N=0\nrun --n $((8 / N))", "$((8 / N))"),
        ("run --n $((2 ** 99999))", "$((2 ** 99999))"),
        ("run --n $((" + "(" * 90 + "1" + ")" * 90 + "))", "1"),
        ("run --n $((1 +))", "$((1 +))"),
        ("run --n $((1 + 1", "$((1 + 1"),
        ("run --n $((__import__('os')))", "$((__import__('os')))"),
    ],
)
def test_variables(script: str, expected: str) -> None:
    """Variables that the script sets are replaced; others stay as they are written."""
    assert words(script)[-1] == expected


SCRIPT = (
    "#!/bin/bash\n"
    "set -x\n"
    "BS=4   # batch\n"
    "python3 -m openrlhf.cli.train_ppo_ray \\\n"
    "   --micro_train_batch_size ${BS} \\\n"
    "   --save_path './a b' \\\n"
    "   --text 'two\n"
    "lines' --last 1\n"
)


@pytest.mark.parametrize("script", [SCRIPT, SCRIPT.replace("\n", "\r\n")], ids=["LF", "CRLF"])
def test_places(script: str) -> None:
    """Every token is the text at its place."""
    tokens = list(read_tokens(script))
    assert [script[token.start : token.end] for token in tokens] == [token.raw for token in tokens]


@pytest.mark.parametrize("script", [SCRIPT, SCRIPT.replace("\n", "\r\n")], ids=["LF", "CRLF"])
@pytest.mark.parametrize(
    ("word", "line"),
    [("set", 2), ("BS=4", 3), ("python3", 4), ("--micro_train_batch_size", 5), ("4", 5), ("./a b", 6), ("--last", 8)],
)
def test_lines(script: str, word: str, line: int) -> None:
    """Every token knows its line, behind continuations and behind words of several lines."""
    assert [token.line for token in read_tokens(script) if token.text == word] == [line]


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("run --a", ["run"]),
        ("A=1 run --a", ["A=1", "run"]),
        ("sudo docker run", ["sudo", "docker"]),
        ("export A=1", ["export", "A=1"]),
        ("env A=1 run b", ["env", "A=1", "run"]),
        ("a b && c d; e f\ng", ["a", "c", "e", "g"]),
        ("a \\\n b", ["a"]),
        ("a > log b", ["a"]),
    ],
)
def test_first_words(script: str, expected: list[str]) -> None:
    """The first word of each command is known, behind assignments, sudo, env and export."""
    assert [token.text for token in read_tokens(script) if token.first] == expected


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("bash -c 'run --a 1'", ["run", "--a", "1"]),
        ('srun -N1 bash -c \\\n"pip install x \\\n&& run --a 1" &>> log', ["pip", "install", "x", "run", "--a", "1"]),
        ("/bin/bash -e -lc 'run --a 1'", ["run", "--a", "1"]),
        ('bash -c "run --a \\"x y\\" --b \\$C"', ["run", "--a", "x y", "--b", "$C"]),
        ('A=1\nbash -c "run --a $A"', ["run", "--a", "1"]),
        ("bash -c \"bash -c 'run --a 1'\"", ["bash", "-c", "run", "--a", "1"]),
        ("bash -c 'run --a 1' 'no command'", ["run", "--a", "1"]),
        ("python -c 'import a; run()'", []),
        ("bash 'my script.sh'", []),
        ("bash -c run", []),
        ("bash -c 'run --a 1", []),
    ],
)
def test_words_of_a_quoted_command(script: str, expected: list[str]) -> None:
    """What `bash -c` is given in quotes is a command: its words are tokens at their places."""
    nested = [token for token in read_tokens(script) if token.nested]
    assert [token.text for token in nested] == expected
    assert [script[token.start : token.end] for token in nested] == [token.raw for token in nested]


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ('ARGS="--a 1 --b 2"\nrun $ARGS --c 3', ["run", "--a", "1", "--b", "2", "--c", "3"]),
        ('ARGS="\n  --a 1 \\\n  --b $N\n"\nrun --c ${ARGS}', ["run", "--c", "--a", "1", "--b", "$N"]),
        ("ARGS='a.b=1 c.d=2'\nrun $ARGS", ["run", "a.b=1", "c.d=2"]),
        ('ARGS="--a 1 --b 2"\nrun "$ARGS"', ["run", "--a 1 --b 2"]),
        ('ARGS="--a 1 --b 2"\nrun $ARGSX', ["run", "$ARGSX"]),
        ('NAME="my run"\nrun $NAME', ["run", "my", "run"]),
        ('A="--a 1"\nA+=" --b 2"\nrun $A', ["run", "--a", "1", "--b", "2"]),
        ('A="--a 1 --c"\nA="$A --b 2"\nrun $A', ["run", "--a", "1", "--c", "--b", "2"]),
        ('A="--a 1"\nA="--b 2"\nrun $A', ["run", "--b", "2"]),
        ('A="--a 1"\nA+=--b\nrun $A', ["run", "$A"]),
        ("A=--a\nA+=' --b 2'\nrun $A", ["run", "$A"]),
        ('A="--a 1"\nbash -c "run $A"', ["run", "--a", "1"]),
        ('V="A=1 B=2"\n$V run --c', ["A=1", "B=2", "run", "--c"]),
        ('V="A=1"\nenv $V run --c', ["env", "A=1", "run", "--c"]),
    ],
)
def test_words_of_a_variable(script: str, expected: list[str]) -> None:
    """A variable that holds settings and is used without quotes is read where it is set, so that they can be changed there."""
    tokens = list(read_tokens(script))
    shown = tokens[
        next(i for i, token in enumerate(tokens) if token.line == script.count("\n") + 1 or token.text == expected[0]) :
    ]
    assert [token.text for token in shown if token.text not in ("bash", "-c")] == expected
    assert all(script[token.start : token.end] == token.raw for token in tokens)


@pytest.mark.parametrize(
    ("document", "inside"),
    [
        ("cat > README <<EOF\ndon't touch this\nEOF\n", ["dont touch this\n"]),
        ("cat <<'EOF' > x.py\nx = \"a\nEOF\n", ["x", "=", "a\n"]),
        ("cat > x <<-EOF\n\t\tit's\n\tEOF\n", ["its\n"]),
        ("cat > x <<A <<B\nit's\nA\nthat's \"\nB\n", ["its\n", 'thats "\n']),
        ("cat << EOF >x\r\nit's\r\nEOF\r\n", ["its\r\n"]),
        ("cat <<EOF | bash\ntrain --a 1\nEOF\n", ["bash", "train", "--a", "1"]),
        ("  cat <<EOF\nusage: run --b 9, it's easy\nEOF\n", []),
        ("bash <<EOF\ntrain --a 1\nEOF\n", ["bash", "train", "--a", "1"]),
        ('cat <<< "it\'s"\n', []),
        ("((N = 4 << 1))\n", ["N", "=", "4"]),
        ("cat <<EOF\n", []),
    ],
)
def test_here_documents(document: str, inside: list[str]) -> None:
    """Quotes of a document do not reach beyond its end; its words are read, since it may be a script, but for what is only shown."""
    tokens = list(read_tokens(f"{document}run --b 2"))
    assert [token.text for token in tokens if token.text != "cat"] == [*inside, "run", "--b", "2"]
    assert [token.first for token in tokens[-3:]] == [True, False, False]


def test_many_documents_without_an_end() -> None:
    """They are read as text."""
    assert len(list(read_tokens("a <<A\n" * 5000 + '"$(" ' * 5000))) == 10_000


def test_backslash_before_a_carriage_return() -> None:
    """A backslash before a carriage return without a newline does not hold the reader up for ever."""
    assert [token.text for token in islice(read_tokens("run \\\r --b"), 10)][-1] == "--b"


scripts = st.text(alphabet="ab1< \t\n\r\\'\"#$={}();&|-", max_size=60)


@settings(max_examples=150, deadline=None, database=None, derandomize=True)
@given(scripts)
def test_any_text(script: str) -> None:
    """No text stops the reader; tokens come in order, are the text at their place and do not overlap."""
    tokens = list(read_tokens(script))
    ends = [place for token in tokens for place in (token.start, token.end)]
    assert (ends, [token.raw for token in tokens]) == (sorted(ends), [script[t.start : t.end] for t in tokens])


@settings(max_examples=100, deadline=None, database=None, derandomize=True)
@given(scripts, st.sampled_from(["", "bash -c ", 'bash -c "', "sh -lc '"]), st.sampled_from(["", '"', "'"]))
def test_lines_of_any_text(script: str, before: str, behind: str) -> None:
    """The line of a token is one more than the newlines before it, and it is the text at its place, also in quoted commands."""
    script = before + script + behind
    tokens = list(read_tokens(script))
    assert [token.raw for token in tokens] == [script[t.start : t.end] for t in tokens]
    assert [token.line for token in tokens] == [script.count("\n", 0, token.start) + 1 for token in tokens]
