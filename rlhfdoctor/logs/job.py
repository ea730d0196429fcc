"""What slurm, Kubernetes, docker or a shell says of a job, or people note of the host.

Notes such as `container memory limit: 480G` or the output of `free`, `df /dev/shm`, `cat
memory.limit_in_bytes` are often handed over with the logs; they are read here too.
"""

from __future__ import annotations

from rlhfdoctor.logs.pattern import Pattern, line
from rlhfdoctor.vocabulary import EVENT

PATTERNS: tuple[Pattern, ...] = (
    line(
        EVENT.slurm.oom,
        r"Detected (?P<kill_count>\d+) oom[-_]kill event(?:\(s\)|s)? in (?P<step_text>(?:step )?[\w=.]*\w)",
        "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=2043.batch cgroup. Some of your processes may have "
        "been killed by the "
        "cgroup out-of-memory handler.",
        when="17.11+",
    ),
    line(
        EVENT.slurm.limit_killed,
        r"(?:Job|Step) (?P<step_text>[0-9.]+) exceeded memory limit \((?P<used_kb>\d+) > (?P<limit_kb>\d+)\), being "
        r"killed",
        "slurmstepd-node01: error: Step 1141809.0 exceeded memory limit (41393168 > 20971520), being killed",
        when="to 17",
    ),
    line(
        EVENT.slurm.task_oom,
        r"srun: error: (?P<ip>\S+): tasks? [0-9,-]+: Out Of Memory|OUT_OF_ME\+|State: OUT_OF_MEMORY",
        "srun: error: node01: task 0: Out Of Memory",
    ),
    line(
        EVENT.slurm.cancelled,
        r"\*\*\* (?:JOB|STEP) (?P<step_text>[0-9.]+) ON (?P<ip>\S+) CANCELLED AT (?P<at_text>\S+)"
        r"(?: DUE TO (?P<reason_text>[A-Z ]+?))? \*\*\*",
        "slurmstepd: error: *** JOB 7715 ON node01 CANCELLED AT 2025-10-04T17:41:09 DUE TO TIME LIMIT ***",
    ),
    line(
        EVENT.slurm.preempted,
        r"this job is preempted|DUE TO PREEMPTION|Job requeued",
        "submitit WARNING (2025-10-04 17:41:08,453) - Caught signal SIGUSR2 on node01: this job is preempted.",
    ),
    line(
        EVENT.shell.killed,
        r"line \d+: +(?P<pid>\d+) Killed\b(?P<command_text>.*)|^Killed$",
        "/var/spool/slurmd/job1/slurm_script: line 61:  30418 Killed                  python3 main.py",
    ),
    line(
        EVENT.shell.terminated,
        r"line \d+: +(?P<pid>\d+) Terminated\b|^Terminated$",
        "run.sh: line 61:  30418 Terminated              python3 main.py",
    ),
    line(
        EVENT.shell.bus_error,
        r"line \d+: +(?P<pid>\d+) Bus error\b|^Bus error(?: \(core dumped\))?$",
        "run.sh: line 3:  77 Bus error               (core dumped) python3 main.py",
    ),
    line(
        EVENT.k8s.oom_killed,
        r"Reason: +OOM ?Killed|\"?reason\"?: \"?OOMKilled",
        "  Reason:       OOMKilled",
    ),
    line(
        EVENT.docker.oom_killed,
        r"\"OOMKilled\": (?P<flag>true|false)",
        '            "OOMKilled": true,',
    ),
    line(
        EVENT.docker.exit,
        r"\"ExitCode\": (?P<exit_code>\d+)",
        '            "ExitCode": 137,',
    ),
    line(
        EVENT.k8s.exit,
        r"Exit Code: +(?P<exit_code>\d+)",
        "  Exit Code:    137",
    ),
    line(
        EVENT.k8s.evicted,
        r"The node was low on resource: (?P<resource_text>[a-z-]+)\.?(?: Threshold quantity: [^.]*\.)?"
        r"(?: Container (?P<name>\S+) was using (?P<used_size>[0-9]+[KMGT]i), "
        r"(?:which exceeds its )?request (?:of|is) (?P<request_text>[\w]+))?"
        r"|The node had condition: \[(?P<condition_text>\w+)\]|Pod was evicted",
        "The node was low on resource: memory. Container ppo was using 7340032Ki, which exceeds its request of 0.",
    ),
    line(
        EVENT.k8s.pod_limit_guess,
        r"may have exceeded K8s pod memory limits",
        "Worker exits with an exit code None. The worker may have exceeded K8s pod memory limits.",
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
        EVENT.job.exit_137,
        r"exit(?:ed with)? (?:code|status) (?:137|-9)\b|died with <Signals\.SIGKILL",
        "subprocess.CalledProcessError: Command died with <Signals.SIGKILL: 9>.",
    ),
    line(
        EVENT.job.interrupted,
        r"^\W*KeyboardInterrupt\b|received signal (?:SIGTERM|15)\b|Caught signal SIG(?:TERM|USR\d)",
        "KeyboardInterrupt",
    ),
    line(
        EVENT.host.meminfo,
        r"(?P<name>MemTotal|MemAvailable|MemFree|Cached|Shmem|Mlocked|SwapTotal|SwapFree): +(?P<size_kb>\d+) kB",
        "MemTotal:    1031798784 kB",
    ),
    line(
        EVENT.host.free,
        r"^\W*(?:Mem:|内存：) +(?P<total_text>[0-9.]+[A-Za-z]*) +(?P<used_text>[0-9.]+[A-Za-z]*) +"
        r"(?P<free_text>[0-9.]+[A-Za-z]*) +(?P<shared_text>[0-9.]+[A-Za-z]*) "
        r"+(?P<cache_text>[0-9.]+[A-Za-z]*) +(?P<available_text>[0-9.]+[A-Za-z]*)",
        "Mem:           1.0Ti       537Gi        12Gi       3.1Gi       458Gi       430Gi",
    ),
    line(
        EVENT.host.df,
        r"^(?P<device_text>\S+) +(?P<size_text>[0-9.]+[KMGTP]?) +(?P<used_text>[0-9.]+[KMGTP]?) +"
        r"(?P<free_text>[0-9.]+[KMGTP]?) +(?P<full_pct>\d+)% "
        r"+(?P<mount_text>/\S*)",
        "tmpfs           755G  2.1M  755G   1% /dev/shm",
    ),
    line(
        EVENT.host.note_limit,
        r"(?:docker|container|cgroup|pod|job) mem(?:ory)?[a-z /]*limit[a-z ]*: *(?P<limit_size>[0-9.]+ ?[KMGT]i?B?)",
        "container memory limit: 480G",
    ),
    line(
        EVENT.host.note_total,
        r"(?:MEM total|RAM per node|memory per node|host memory|total memory|RAM): *"
        r"(?P<total_size>[0-9.]+ ?[KMGT]i?B?)\b",
        "RAM per node: 1024GB",
    ),
    line(
        EVENT.host.note_used,
        r"(?:MEM used|memory used): *(?P<used_size>[0-9.]+ ?[KMGT]i?B?)\b",
        "memory used: 611GB",
    ),
    line(
        EVENT.host.cgroup_limit,
        r"(?:memory\.limit_in_bytes|memory\.max)\b.{0,40}?(?P<limit_bytes>\d{6,20}|max)\b",
        "/sys/fs/cgroup/memory/memory.limit_in_bytes: 536870912000",
    ),
    line(
        EVENT.host.cgroup_file,
        r"cat \S*/(?P<file_text>memory\.limit_in_bytes|memory\.usage_in_bytes|memory\.max|memory\.current)\s*$",
        "$ cat /sys/fs/cgroup/memory/memory.limit_in_bytes",
        follow=1,
    ),
    line(
        EVENT.host.no_space,
        r"No space left on device|\[Errno 28\]",
        "OSError: [Errno 28] No space left on device: '/data/ckpt/global_step_100'",
    ),
    line(
        EVENT.host.process_limit,
        r"can't start new thread|Too many open files|Resource temporarily unavailable|pthread_create failed"
        r"|fork: retry|\[Errno 24\]",
        "what():  thread: Resource temporarily unavailable [system:11]",
    ),
    line(
        EVENT.host.gpu_unreachable,
        r"Unable to determine the device handle for GPU|GPU is lost"
        r"|nvidia-smi has failed because it couldn't communicate",
        "Unable to determine the device handle for GPU0000:41:00.0: Unknown Error",
    ),
)
