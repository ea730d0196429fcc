"""Why Ray's workers, actors or nodes are gone, by Ray's own account.

src/ray/protobuf/common.proto (WorkerExitType), src/ray/core_worker/core_worker.cc, python/ray/exceptions.py. The
stock text of a vanished worker names the OOM killer as one guess of three: it is no evidence of an OOM.
"""

from __future__ import annotations

from rlhfdoctor.logs.pattern import Pattern, line
from rlhfdoctor.vocabulary import EVENT

PATTERNS: tuple[Pattern, ...] = (
    line(
        EVENT.ray.worker_exit_gcs,
        r"Reporting worker exit, worker id = (?P<worker_id>\w+), node id = (?P<node_id>\w+), address = [^,]*, "
        r"exit_type = (?P<exit_type>\w+), "
        r"exit_detail = (?P<detail_text>.*)",
        "gcs_worker_manager.cc:55: Reporting worker exit, worker id = ab, node id = cd, address = , exit_type = "
        "NODE_OUT_OF_MEMORY, "
        "exit_detail = Task was killed due to the node running low on memory.",
    ),
    line(
        EVENT.ray.worker_exit_gcs,
        r"Worker running the task \((?P<worker_id>\w+)\) died with exit_type: (?P<exit_type>\w+) with error_message: "
        r"(?P<detail_text>.*)",
        "Worker running the task (75ab) died with exit_type: 0 with error_message: Worker unexpectedly exits with a "
        "connection error code 2. End of file.",
        when="2.3+; src/ray/gcs/gcs_task_manager.cc; the type is its number in common.proto",
    ),
    line(
        EVENT.ray.worker_died,
        r"A worker died or was killed while executing a task by an unexpected system error"
        r"(?:.*Worker PID: (?P<pid>\d+))?",
        "(raylet) A worker died or was killed while executing a task by an unexpected system error. To troubleshoot "
        "the problem, "
        "check the logs for the dead worker. RayTask ID: ff Worker ID: 75 Node ID: a7 Worker IP address: 10.0.0.2 "
        "Worker port: 10233 "
        "Worker PID: 884210 Worker exit type: SYSTEM_ERROR",
    ),
    line(
        EVENT.ray.worker_vanished,
        r"(?:Worker IP address: (?P<ip>[\w.:]{1,60}) Worker port: \d{1,5} Worker PID: (?P<pid>\d{1,9}) )?"
        r"Worker exit type: (?:SYSTEM_ERROR|UNEXPECTED_SYSTEM_EXIT) Worker exit detail: (?P<detail_text>.{1,400})",
        "The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR Worker exit detail: "
        "Worker unexpectedly "
        "exits with a connection error code 2. End of file.",
    ),
    line(
        EVENT.ray.worker_exit_code,
        r"Worker exits with an exit code (?P<exit_code>-?\d+)",
        "Worker exit type: SYSTEM_ERROR Worker exit detail: Worker exits with an exit code 1. sys.exit(1)",
        when="1.13+; src/ray/core_worker/core_worker.cc",
    ),
    line(
        EVENT.ray.killed_on_request,
        r"The actor is dead because it was killed by `?ray\.kill"
        r"|exit[ _]detail(?: =|:) [^\n]{0,80}?killed by `?ray\.kill",
        "ray.exceptions.ActorDiedError: The actor is dead because it was killed by `ray.kill`.",
    ),
    line(
        EVENT.ray.actor_died,
        r"(?P<error>ActorDiedError|RayActorError|ActorUnavailableError|ActorUnschedulableError|NodeDiedError"
        r"|WorkerCrashedError|OwnerDiedError|LocalRayletDiedError)\b",
        "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.",
    ),
    line(
        EVENT.ray.actor_lost,
        r"ActorUnavailableError|The actor [^\n]{0,80} is unavailable|The actor is temporarily unavailable",
        "ray.exceptions.ActorUnavailableError: The actor ab is unavailable: The actor is temporarily unavailable",
    ),
    line(
        EVENT.ray.actor_class,
        r"^\W*class_name: (?P<name>\S+)",
        "        class_name: create_colocated_worker_cls.<locals>.WorkerDict",
    ),
    line(
        EVENT.ray.intended_exit,
        r"ray\.kill|INTENDED_(?:USER|SYSTEM)_EXIT|The actor is dead because it was killed by `ray\.kill`|ACTOR_REMOVED"
        r"|The actor is dead because all references to the actor were removed|Worker exits because the actor is killed",
        "exit_type = INTENDED_USER_EXIT, exit_detail = Worker exits by an user request. exit_actor() is called.",
    ),
    line(
        EVENT.ray.stopped,
        r"received SIGTERM|Received SIGTERM|SIGTERM handler is called|Terminated by signal SIGTERM|Shutting down Ray"
        r"|Sent SIG(?:TERM|KILL) to",
        "[2025-04-02 15:02:00,117 I 135782 135782] (raylet) main.cc:812: received SIGTERM. Existing local drain "
        "request = None",
    ),
    line(
        EVENT.ray.node_dead,
        r"has been marked dead because the (?:monitor|detector) has missed too many heartbeats"
        r"|has missed too many heartbeats from it|health check failed due to missing too many heartbeats"
        r"|\bNode (?:\w{1,64} )?is dead because the health check failed",
        "The node with node id: ab and ip: 10.0.0.1 has been marked dead because the detector has missed too many "
        "heartbeats from it.",
    ),
    line(
        EVENT.ray.node_crashed,
        r"Owner's node has crashed|The node has died|raylet (?:crashed|died) unexpectedly"
        r"|mistakenly been marked as dead by the GCS|GCS consider this node to be dead"
        r"|where this task was running\)? {1,2}(?:was dead or unavailable|crashed unexpectedly)"
        r"|The actor (?:is dead|died) because its node has died|Actor died by preemption"
        r"|the actor's node was terminated unexpectedly",
        "Owner worker exit type: SYSTEM_ERROR Worker exit detail: Owner's node has crashed.",
    ),
    line(
        EVENT.ray.node_crashed,
        r"(?:the local Raylet is dead|the local raylet has been dead|the Raylet has most likely crashed)\."
        r"|the raylet is unavailable \(crashed\)|Terminating the worker due to local raylet death"
        r"|Failed to get the system config from raylet because it is dead",
        "core_worker.cc:310: Exiting because the Raylet IPC connection failed and the local Raylet is dead. Status: "
        "IOError: Broken pipe",
        when="1.x+; src/ray/core_worker; a worker ends with its raylet, also where the raylet was stopped",
    ),
    line(
        EVENT.ray.raylet_died,
        r"Raylet is terminated\. Termination is unexpected",
        "(raylet) Raylet is terminated. Termination is unexpected. Possible reasons include: (1) SIGKILL by the user "
        "or system OOM killer",
        when="2.60",
    ),
    line(
        EVENT.ray.gcs_lost,
        r"Failed to connect to GCS within \d+ seconds|Timed out while waiting for GCS to become available"
        r"|GCS server is dead or (?:under high load|there's a high load)",
        "rpc_client.h:204: Failed to connect to GCS within 20 seconds. GCS may have been killed.",
    ),
    line(
        EVENT.ray.raylet_agent_failed,
        r"The raylet exited immediately because the|The raylet fate shares with the agent",
        "agent_manager.cc:134: The raylet exited immediately because the Ray agent failed. The raylet fate shares "
        "with the agent.",
    ),
)
