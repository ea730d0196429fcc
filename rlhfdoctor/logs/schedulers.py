"""What schedulers or container runtimes say of a job: slurm, LSF, PBS, Grid Engine, Kubernetes, docker.

slurm: src/slurmd/slurmstepd, src/srun, sacct(1), scontrol(1), seff. LSF: bjobs' TERM_ reasons (LSF reference,
"bacct"). PBS: src/resmom/mom_main.c ("PBS: job killed: ..."). Kubernetes: pkg/kubelet/eviction,
pkg/kubelet/kuberuntime, `kubectl describe`, `kubectl get pods`, pod YAML. docker: inspect, events, ps.
"""

from __future__ import annotations

from rlhfdoctor.logs.pattern import Pattern, line
from rlhfdoctor.vocabulary import EVENT

PATTERNS: tuple[Pattern, ...] = (
    line(
        EVENT.slurm.oom,
        r"Detected (?:(?P<kill_count>\d+) )?oom[-_]kill event(?:\(s\)|s)?(?: in (?P<step_text>(?:step )?[\w=.]*\w))?",
        "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=2043.batch cgroup. Some of your processes may have "
        "been killed by the "
        "cgroup out-of-memory handler.",
        when="17.11+",
    ),
    line(
        EVENT.slurm.oom,
        r"\boom-kill event count: (?:[1-9])|\bOOM detected \d+ job and (?:[1-9])\d* step kills",
        "[2025-10-04T17:41:09.117] [2043.0] debug:  oom-kill event count: 2",
        when="17.11+ with SlurmdDebug=debug or DebugFlags=Cgroup; src/plugins/cgroup/v1, v2",
    ),
    line(
        EVENT.slurm.limit_killed,
        r"(?:Job|Step) (?P<step_text>[0-9.]+) exceeded memory limit(?: ?\((?:(?P<used_kb>\d+) > (?P<limit_kb>\d{1,9})"
        r"|(?P<used_bytes>\d+) > (?P<limit_bytes>\d{11,18})|(?P<used_mib>\d+)>(?P<limit_mib>\d{1,7}))\))?"
        r"|slurmstepd: error: Exceeded (?:job|step) memory limit\s*$",
        "slurmstepd-node01: error: Step 1141809.0 exceeded memory limit (41393168 > 20971520), being killed",
        when="slurmstepd: kB to 17.11, bytes 18.08 to 20.02 (ten digits may be either); slurmd (`cancelling it`): MiB; "
        "src/common/slurm_jobacct_gather.c, src/slurmd/slurmd/req.c",
    ),
    line(
        EVENT.slurm.limit_killed,
        r"(?:Job|Step)Id=(?P<step_text>[\w.+]+) exceeded memory limit"
        r"(?: ?\((?P<used_bytes>\d+) ?> ?(?P<limit_bytes>\d+)\))?",
        "slurmstepd: error: StepId=2043.0 exceeded memory limit (41393168384 > 20971520000), being killed",
        when="20.11+; src/interfaces/jobacct_gather.c",
    ),
    line(
        EVENT.slurm.limit_killed,
        r"(?:Job|Step)(?: |Id=)(?P<step_text>[\w.+]+) exceeded virtual memory limit",
        "slurmstepd: error: StepId=2043.0 exceeded virtual memory limit (83886080000 > 20971520000), being killed",
        when="with VSizeFactor; its figures are of address space, so they are no limit of memory",
    ),
    line(
        EVENT.slurm.task_oom,
        r"srun: error: (?P<ip>\S+): tasks? [0-9,-]+: Out Of Memory|\bOUT_OF_ME(?:\+|MORY\b)|\bReason=OutOfMemory"
        r"|\btask \d+ \(\d+\) Out Of Memory \(OOM\)",
        "srun: error: node01: task 0: Out Of Memory",
    ),
    line(
        EVENT.slurm.cancelled,
        r"\*\*\* (?:JOB|STEP) (?P<step_text>[\w.+]+)(?: ON (?P<ip>\S+))? CANCELLED(?: AT (?P<at_text>\S+))?"
        r"(?: DUE TO (?P<reason_text>[A-Z ]+?)(?: \*\*\*|,|$))?"
        r"|\bCANCELLED by \d+|\bJobState=(?:CANCELLED|TIMEOUT|DEADLINE)\b|\bState: (?:CANCELLED|TIMEOUT)\b"
        r"|\bTIMEOUT +\d+:\d+ *$|srun: Force Terminated (?:job|StepId)|\bReason=TimeLimit\b"
        r"|\bJob \d+: timeout: sent SIGTERM to",
        "slurmstepd: error: *** JOB 7715 ON node01 CANCELLED AT 2025-10-04T17:41:09 DUE TO TIME LIMIT ***",
    ),
    line(
        EVENT.slurm.preempted,
        r"this job is preempted|DUE TO PREEMPTION|Job requeued|\bJobState=PREEMPTED\b|\bPREEMPTED +\d+:\d+",
        "submitit WARNING (2025-10-04 17:41:08,453) - Caught signal SIGUSR2 on node01: this job is preempted.",
    ),
    line(
        EVENT.slurm.node_failed,
        r"DUE TO NODE FAILURE|\bJobState=NODE_FAIL\b|\bNODE_FAIL +\d+:\d+|srun: error: Node failure on (?P<ip>\S+)",
        "slurmstepd: error: *** JOB 7715 ON node01 CANCELLED AT 2025-10-04T17:41:09 DUE TO NODE FAILURE, SEE "
        "SLURMCTLD LOG FOR DETAILS ***",
    ),
    line(
        EVENT.batch.memory_limit,
        r"TERM_MEMLIMIT|PBS: job killed: (?:v?mem|pmem|pvmem) (?P<used_text>\w+) exceeded limit (?P<limit_text>\w+)"
        r"|exceeded (?:its |the )?(?:job hard limit \"(?:h_vmem|h_rss|mem)|mem(?:ory)? (?:usage|limit|request))"
        r"|job [\w.-]{1,40} exceeded (?:P?V?MEM|SWAP) usage (?:hard|soft) limit"
        r"|Memory limit exceeded: Requested: ?\w{1,20} Maximum Used: ?\w{1,20}"
        r"|[Cc]group mem(?:ory)? limit exceeded|has gone over (?:cgroup )?memory limit",
        "TERM_MEMLIMIT: job killed after reaching LSF memory usage limit.",
    ),
    line(
        EVENT.batch.stopped,
        r"TERM_(?:RUNLIMIT|CPULIMIT|DEADLINE|PREEMPT|OWNER|ADMIN|FORCE_OWNER|FORCE_ADMIN|REQUEUE_OWNER|REQUEUE_ADMIN|WINDOW)"
        r"|PBS: job killed: (?:walltime|cput|ncpus) (?P<used_text>\w+) exceeded limit (?P<limit_text>\w+)"
        r"|[Ss]pot (?:instance|VM|node)\b[^\n]{0,80}\b(?:interrupt|reclaim|preempt|terminat)"
        r"|job [\w.-]{1,40} exceeded (?:WALLTIME|CPUTIME|WCLIMIT) usage (?:hard|soft) limit"
        r"|Metadata Service says termination is imminent|EventType\W{1,6}Preempt\b"
        r"|systemd-logind\S{0,10} Power key pressed"
        r"|compute\.instances\.preempted|(?:instance|VM|node) (?:was|has been|is being|will be) preempted"
        r"|exceeded (?:job )?hard (?:wallclock|runtime|limit \"h_(?:rt|cpu))|qdel: .{0,60}has (?:registered|deleted)",
        "=>> PBS: job killed: walltime 3624 exceeded limit 3600",
    ),
    line(
        EVENT.k8s.oom_killed,
        r"[Rr]eason\"?[:=] *\"?OOM ?Killed|\s\d+/\d+ +OOMKilled\b|\bContainer .{1,120} was (?:OOMKilled)",
        "  Reason:       OOMKilled",
    ),
    line(
        EVENT.k8s.system_oom,
        r"System OOM encountered(?:, victim process: (?P<comm>[^,\n]{1,40}))?(?:, pid: (?P<pid>\d+))?",
        "Warning  SystemOOM  3m  kubelet  System OOM encountered, victim process: python3, pid: 48211",
    ),
    line(
        EVENT.docker.oom_killed,
        r"\"?\bOOMKilled\"?(?:: ?|=)(?P<flag>true|false)",
        '            "OOMKilled": true,',
    ),
    line(
        EVENT.docker.oom_event,
        r"\bcontainer oom [0-9a-f]{12,64}|container init was OOM-killed|\bTaskOOM event|\btopic=\"?/tasks/oom",
        "2025-04-02T15:02:00.117Z container oom 5f0c2d1e9a7b5f0c2d1e9a7b5f0c2d1e9a7b5f0c2d1e9a7b5f0c2d1e9a7b5f0c "
        "(image=trainer, name=trainer-1)",
    ),
    line(
        EVENT.docker.exit,
        r"\"?\bExitCode\"?: ?(?P<exit_code>\d+)",
        '            "ExitCode": 137,',
    ),
    line(
        EVENT.docker.exit,
        r"\bExited \((?P<exit_code>\d+)\) (?:\d|About|Less)",
        '5f0c2d1e9a7b   trainer:3   "python3 main.py"   2 hours ago   Exited (137) 3 minutes ago   trainer-1',
    ),
    line(
        EVENT.k8s.exit,
        r"Exit Code: +(?P<exit_code>\d+)",
        "  Exit Code:    137",
    ),
    line(
        EVENT.k8s.exit,
        r"\bexitCode\"?[:=] ?(?P<exit_code>\d+)",
        "          exitCode: 137",
    ),
    line(
        EVENT.k8s.evicted,
        r"The node was low on resource: (?P<resource_text>[a-z-]+)\.?(?: Threshold quantity: [^.]*\.)?"
        r"(?: Container (?P<name>\S+) was using (?P<used_size>[0-9]+[KMGT]i), "
        r"(?:which exceeds its )?request (?:of|is) (?P<request_text>[\w]+))?"
        r"|The node had condition: \[(?P<condition_text>\w+)\]|Pod was evicted|[Rr]eason\"?[:=] *\"?Evicted\b"
        r"|\s\d+/\d+ +Evicted\b|TaintManagerEviction|\bPreempted by (?:a )?pod"
        r"|[Rr]eason\"?[:=] *\"?(?:Preempt|DeadlineExceeded)",
        "The node was low on resource: memory. Container ppo was using 7340032Ki, which exceeds its request of 0.",
    ),
    line(
        EVENT.k8s.probe_killed,
        r"Container \S{1,120} failed (?:liveness|startup) probe, will be restarted"
        r"|Killing container[^\n]{1,120}unhealthy, it will be killed and re-created",
        "Normal  Killing  25m  kubelet  Container server failed liveness probe, will be restarted",
        when="pkg/kubelet/kuberuntime/kuberuntime_manager.go",
    ),
    line(
        EVENT.k8s.unschedulable,
        r"\bFailedScheduling\b|\d{1,9}/\d{1,9} nodes are available: \d{1,9} ",
        "Warning  FailedScheduling  3m  default-scheduler  0/5 nodes are available: 5 Insufficient nvidia.com/gpu.",
    ),
    line(
        EVENT.k8s.node_lost,
        r"\bNodeNotReady\b|\bNodeLost\b|node\.kubernetes\.io/(?:unreachable|not-ready)|node controller.{0,40}NotReady",
        "Warning  NodeNotReady  2m  node-controller  Node is not ready",
    ),
    line(
        EVENT.k8s.shm_evicted,
        r"Usage of EmptyDir volume \W?[\w-]{0,60}(?:shm|shared-?mem)[\w-]{0,60}\W?"
        r" exceeds the limit \W?(?P<limit_size>[\d.]+[KMGT]i?)?",
        'Usage of EmptyDir volume "dshm" exceeds the limit "512Mi".',
        when="pkg/kubelet/eviction/eviction_manager.go; a volume of medium Memory at /dev/shm, by its usual names",
    ),
    line(
        EVENT.k8s.disk_evicted,
        r"The node was low on resource: ephemeral-storage|ephemeral local storage usage exceeds"
        r"|(?:Usage of EmptyDir volume|Container) \S{1,100} exceed(?:s|ed) (?:the|its local ephemeral storage)"
        r"|The node had condition: \[DiskPressure\]",
        "Warning  Evicted  109s  kubelet  Pod ephemeral local storage usage exceeds the total limit of containers 5Gi.",
        when="pkg/kubelet/eviction/helpers.go, eviction_manager.go",
    ),
    line(
        EVENT.k8s.pod_limit_guess,
        r"may have exceeded K8s pod memory limits",
        "Worker exits with an exit code None. The worker may have exceeded K8s pod memory limits.",
    ),
)
