"""How a process ended, in the words of shells, launchers, containers or schedulers: signals times forms.

Each signal has a word (glibc's strsignal; zsh writes it in lower case; bash is translated), a name and a number; an
exit status of 128 + n or -n is the same end (POSIX sh 2.8.2; Python's subprocess.Popen.returncode). The forms are
those of bash's jobs.c, zsh's Src/jobs.c, dash's jobs.c, fish's src/proc.rs, srun, GNU time, systemd's
src/core/service.c, Python's CalledProcessError, Go's os.ProcessState, Rust's ExitStatus, Open MPI's mpirun.
"""

from __future__ import annotations

from typing import NamedTuple

from rlhfdoctor.logs.pattern import Pattern, line
from rlhfdoctor.vocabulary import EVENT
from rlhfdoctor.vocabulary.names import Kind


class Signal(NamedTuple):
    """A signal, or several that mean the same."""

    words: str
    """Alternatives of the shells' words."""
    names: str
    """Alternatives of the names, without SIG."""
    numbers: str
    """Alternatives of the numbers."""
    statuses: str
    """Alternatives of exit statuses above 128; 247 is -9 in eight bits."""
    shell: Kind
    """What it is when a shell says it."""
    exit: Kind
    """What it is as the status of a process."""


KILL = Signal("Killed|killed|已杀死", "KILL", "9", "137|247", EVENT.shell.killed, EVENT.job.exit_137)
SEGV = Signal(
    "Segmentation fault|segmentation fault|段错误", "SEGV", "11", "139|245", EVENT.shell.segfault, EVENT.job.exit_139
)
BUS = Signal("Bus error|bus error|总线错误", "BUS", "7", "135", EVENT.shell.bus_error, EVENT.job.exit_135)
TERM = Signal("Terminated|terminated|已终止", "TERM", "15", "143", EVENT.shell.terminated, EVENT.job.exit_143)
ABORT = Signal("Aborted|Abort trap|abort|已放弃", "ABRT", "6", "134", EVENT.shell.aborted, EVENT.job.exit_134)
OTHER = Signal(
    "Illegal instruction|illegal hardware instruction|Floating point exception|floating point exception|Bad system call"
    "|Trace/breakpoint trap|trace trap|浮点数例外|非法指令",
    "ILL|FPE|SYS|TRAP",
    "4|5|8|31",
    "132|133|136|159",
    EVENT.shell.crashed,
    EVENT.job.exit_crashed,
)
SIGNALS = (KILL, SEGV, BUS, TERM, ABORT, OTHER)

_CORE = r"(?: ?[(（](?:core dumped|吐核|核心已转储)[)）])?"


def _in_shells(signal: Signal) -> str:
    """The forms in which shells report a job that a signal ended."""
    words = rf"(?:{signal.words})(?:: \d{{1,2}}\b)?"  # with its number on macOS
    return (
        rf"(?:line|行|第) ?\d+(?: ?行)?[:：] *(?P<pid>\d+) {words}(?:[ \t(（]+(?P<command_text>.*)|$)"  # bash, script
        rf"|^\W{{0,8}}{words}{_CORE}$"  # dash, busybox, bash -c
        rf"|\b(?:zsh|bash|dash|ksh|sh): (?:\d+ )?{words}{_CORE}(?: {{2,}}\S|$)"  # zsh, one command
        rf"|^\W{{0,8}}\[\d{{1,9}}\][ \t]{{0,9}}[+-]?[ \t]{{1,40}}(?:\d{{1,9}} {{1,9}})?"
        rf"{words}{_CORE}(?: {{2,}}|$)"  # a job of an interactive shell
        rf"|srun: error: \S{{1,80}}: tasks? [\d,-]{{1,200}}: {words}"
        rf"|make(?:\[\d+\])?: \*\*\* \[[^\]\n]{{1,200}}\] {words}"
    )


def _as_status(signal: Signal) -> str:
    """The forms in which launchers, containers or schedulers report the status of a process."""
    status = rf"(?: *[:=] *| (?:is |of )?)(?:-(?:{signal.numbers})|{signal.statuses})\b"
    number, name = rf"(?:{signal.numbers})\b", f"SIG(?:{signal.names})"
    ended = "(?:killed|terminated|ended|died|exited|crashed|stopped)(?: abnormally)?"
    return (
        rf"\b[Ee]xit(?:ed|s|ing)?[ _-](?:with[ _])?(?:an? )?(?:exit[ _])?(?:[Cc]ode|[Ss]tatus|value)?\"?{status}"
        rf"|\bexitcode\"?{status}|\b[Rr]eturn[ _]?code\"?{status}"
        rf"|\b[Rr]eturn(?:ed|s) (?:with )?(?:non-zero )?(?:exit )?(?:code|status){status}"
        rf"|\bwith(?: (?:exit )?(?:code|status)| return code){status}|{ended} with{status}"
        rf"|died with <Signals\.{name}"
        rf"|{ended} (?:by|with|on|due to|from)(?: fatal| a)? "
        rf"(?:[Ss]ignal:? {number}|(?:signal )?{name}(?:[.,;:)]?$| ?\())"
        rf"|\b[Ss]ignal[:=]? {{1,3}}{number} ?[(,]|\bsignal: (?:{signal.words})\b"
        rf"|code=(?:killed|dumped), status={number}|\) exited\. Killed by signal {number}"
        rf"|\b(?:Exit ?Code|ExitCode|DerivedExitCode)[:=] *0:{number}"
        rf"|(?:OUT_OF_ME\S{{0,4}}|FAILED|CANCELLED\S{{0,2}}|NODE_FAIL|TIMEOUT|COMPLETED) +0:{number}"
        rf"|signaled to shutdown with signal {number}"
        rf"|WIFSIGNALED\b.{{0,40}}?\b{number}"
    )


_SHELL_SAMPLES = {
    EVENT.shell.killed: "run.sh: line 61:  30418 Killed                  python3 main.py",
    EVENT.shell.segfault: "bash: line 1: 2552014 Segmentation fault      (core dumped) python x.py",
    EVENT.shell.bus_error: "run.sh: line 3:  77 Bus error               (core dumped) python3 main.py",
    EVENT.shell.terminated: "run.sh: line 61:  30418 Terminated              python3 main.py",
    EVENT.shell.aborted: "[1]  + 40213 abort (core dumped)  python3 main.py",
    EVENT.shell.crashed: "zsh: illegal hardware instruction  python3 main.py",
}
_STATUS_SAMPLES = {
    EVENT.job.exit_137: "subprocess.CalledProcessError: Command died with <Signals.SIGKILL: 9>.",
    EVENT.job.exit_139: "command terminated with exit code 139",
    EVENT.job.exit_135: "mpirun noticed that process rank 0 with PID 77 on node n1 exited on signal 7 (Bus error).",
    EVENT.job.exit_143: "train.service: Main process exited, code=killed, status=15/TERM",
    EVENT.job.exit_134: "launch.py: worker 3 ended, returncode=-6, exitcode: -6",
    EVENT.job.exit_crashed: "Command terminated by signal 4",
}

PATTERNS: tuple[Pattern, ...] = (
    *(line(signal.shell, _in_shells(signal), _SHELL_SAMPLES[signal.shell]) for signal in SIGNALS),
    *(line(signal.exit, _as_status(signal), _STATUS_SAMPLES[signal.exit]) for signal in SIGNALS),
    line(
        EVENT.shell.killed,
        r"\bterminated by signal SIGKILL \(",
        "fish: Job 1, 'python3 main.py' terminated by signal SIGKILL (Forced quit)",
    ),
    line(
        EVENT.shell.segfault,
        r"\bterminated by signal SIGSEGV \(",
        "fish: Job 1, 'python3 main.py' terminated by signal SIGSEGV (Address boundary error)",
    ),
    line(
        EVENT.job.exit_0,
        r"^\W*(?:echo )?exit(?:=|[ _](?:code|status)(?:=|: ?| ))0\s*$"
        r"|\b(?:[Jj]ob|[Rr]un|[Tt]raining|[Cc]ommand|[Ss]cript) (?:\S{1,60} ){0,4}"
        r"(?:exited|finished|ended) with (?:exit )?(?:code|status) 0\b"
        r"|^\W*Process finished with exit code 0\b",
        "Process finished with exit code 0",
    ),
    line(
        EVENT.job.failed,
        r"[Mm]ain process exited, code=exited, status=(?P<exit_code>[1-9]\d{0,2})/"
        r"|Failed with result '(?:exit-code|signal|core-dump|timeout|watchdog)'"
        r"|returned non-zero exit status [1-9]"
        r"|^make(?:\[\d+\])?: \*\*\* \[[^\]\n]{1,200}\] Error \d+"
        r"|\bJobState=FAILED\b|\bState: FAILED \(",
        "train.service: Main process exited, code=exited, status=1/FAILURE",
    ),
    line(
        EVENT.job.interrupted,
        r"^\W*KeyboardInterrupt\b|received signal (?:SIGTERM|15)\b|Caught signal SIG(?:TERM|USR\d)"
        r"|srun: sending Ctrl-C to (?:StepId=|job |step )|\binterrupt \(abort already in progress\)",
        "KeyboardInterrupt",
    ),
)
