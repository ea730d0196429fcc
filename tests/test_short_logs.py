"""One line is all there is: what must be seen in it, and what must not be said of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlhfdoctor.core.diagnose import analyze

LOGS = {
    "kernel, no last fields": (
        "Out of memory: Killed process 40822 (python) total-vm:8923144kB, anon-rss:511920kB",
        ("undecided", "kernel-oom-node", None),
    ),
    "kernel, cut behind the name": ("Out of memory: Killed process 40822 (python)", ("undecided", "kernel-oom-node", None)),
    "cgroup, cut": (
        "Memory cgroup out of memory: Killed process 40822 (python) total-vm:89...",
        ("cause", "kernel-oom-cgroup", "host-container-limit"),
    ),
    "reaper alone": ("oom_reaper: reaped process 40822 (python)", ("undecided", "kernel-oom-node", None)),
    "segmentation fault": (
        "bash: line 1: 2552014 Segmentation fault      (core dumped) python x.py",
        ("cause", "sigsegv", "other-software-error"),
    ),
    "NaN": ("NaN detected in loss, aborting.", ("cause", "exception", "other-software-error")),
    "NaN, in other words": ("ERROR: loss became nan at step 12, stopping", ("cause", "exception", "other-software-error")),
    "NaN, and on": ("{'loss': nan, 'grad_norm': nan, 'epoch': 0.2}", ("inconclusive", None, None)),
    "loss scale": (
        "Exception: Current loss scale already at minimum - cannot decrease scale anymore. Exiting run.",
        ("cause", "exception", "other-software-error"),
    ),
    "KL": ("KL divergence 182.4 exceeded 50.0, stopping training", ("cause", "exception", "other-software-error")),
    "no log": ("echo hello", ("inconclusive", None, None)),
    "sys.exit in an actor": (
        "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task. Worker exit type: "
        "SYSTEM_ERROR Worker exit detail: Worker exits with an exit code 1.",
        ("undecided", "exception", None),
    ),
    "ray.kill": (
        "ray.exceptions.ActorDiedError: The actor is dead because it was killed by `ray.kill`.",
        ("cause", "other", "other-killed-by-operator"),
    ),
    "Ray's memory monitor, by the type of exit": (
        "The actor is dead because its worker process has died. Worker exit type: NODE_OUT_OF_MEMORY",
        ("undecided", "ray-memory-monitor", None),
    ),
    "disk of spilled objects": ("ray.exceptions.OutOfDiskError: Local disk is full", ("cause", "object-store-full", "other-disk-full")),
    "a worker of the loader": ("RuntimeError: DataLoader worker (pid(s) 77, 78) exited unexpectedly", ("undecided", None, None)),
    "an object's owner": ("ray.exceptions.ObjectLostError: Failed to retrieve object 00ff.", ("undecided", None, None)),
    "the launcher's signal": (
        "W0101 09:10:41.1 8493 torch/distributed/elastic/agent/server/api.py:719] Received 1 death signal, shutting down "
        "workers\nTraceback (most recent call last):\n  File \"<frozen runpy>\", line 198, in _run_module_as_main",
        ("cause", "other", "other-killed-by-operator"),
    ),
    "Ctrl-C at torchrun": (
        "WARNING:torch.distributed.elastic.multiprocessing.api:Sending process 47 closing signal SIGINT",
        ("cause", "other", "other-killed-by-operator"),
    ),
    "ECC of an old torch": (
        "RuntimeError: cuda runtime error (39) : uncorrectable ECC error encountered at /pytorch/a.cpp:26",
        ("cause", "exception", "other-gpu-hardware"),
    ),
    "no route": (
        "n2:11:12 [0] NCCL INFO socketPollConnect: connect returned No route to host, retrying (34/34) after sleep for "
        "3400 msec",
        ("cause", "exception", "comm-network-fabric"),
    ),
    "a route at last": (
        "n2:11:12 [0] NCCL INFO socketPollConnect: connect returned No route to host, retrying (1/34) after sleep for "
        "100 msec",
        ("inconclusive", None, None),
    ),
    "gloo's mesh": (
        "[rank1]:[E101 11:34.7 ProcessGroupGloo.cpp:143] Gloo connectFullMesh failed with [pair.cc:144] no error",
        ("cause", "exception", "comm-network-fabric"),
    ),
    "descriptors, by a storage": (
        "RuntimeError: unable to open shared memory object </torch_3_4> in read-write mode\n" + "x\n" * 9
        + "OSError: [Errno 24] Too many open files",
        ("cause", "exception", "other-process-limit"),
    ),
    "two collectives at once": (
        "[rank0]:[E101 ProcessGroupNCCL.cpp:616] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL("
        "SeqNum=22, OpType=_REDUCE_SCATTER_BASE, NumelIn=10634368, NumelOut=5317184, Timeout(ms)=600000) ran for 600080 "
        "milliseconds before timing out.\n[rank1]:[E101 ProcessGroupNCCL.cpp:616] [Rank 1] Watchdog caught collective "
        "operation timeout: WorkNCCL(SeqNum=26, OpType=_ALLGATHER_BASE, NumelIn=3787020, NumelOut=7574040, "
        "Timeout(ms)=600000) ran for 600079 milliseconds before timing out.",
        ("cause", "collective-timeout", "comm-shape-mismatch"),
    ),
    "saving on the GPU": (
        '  File "/opt/bnb/nn/modules.py", line 336, in _save_to_state_dict\ntorch.cuda.OutOfMemoryError: CUDA out of '
        "memory. Tried to allocate 256.00 MiB (GPU 0; 79.35 GiB total capacity; 77.18 GiB already allocated; 57.19 MiB "
        "free; 77.97 GiB reserved in total by PyTorch)",
        ("cause", "cuda-oom", "gpu-checkpoint-spike"),
    ),
    "attention over a whole picture": (
        "    out = F.scaled_dot_product_attention(q, k, v, attention_mask)\ntorch.OutOfMemoryError: CUDA out of memory. "
        "Tried to allocate 96.00 GiB. GPU 0 has a total capacity of 79.15 GiB of which 60.47 GiB is free.",
        ("cause", "cuda-oom", "gpu-long-sequences"),
    ),
    "a small model on a small GPU": (
        "trainable params: 25,830,000 || all params: 25,830,000 || trainable%: 100.0\n"
        '  File "/opt/torch/_tensor.py", line 626, in backward\ntorch.OutOfMemoryError: CUDA out of memory. Tried to '
        "allocate 1.14 GiB. GPU 0 has a total capacity of 14.58 GiB of which 675.62 MiB is free. Of the allocated memory "
        "13.61 GiB is allocated by PyTorch, and 185.38 MiB is reserved by PyTorch but unallocated.",
        ("cause", "cuda-oom", "gpu-micro-batch"),
    ),
    "a plain Exception": ("Exception: the judge returned nothing", ("cause", "exception", "other-software-error")),
    "a report of IPython, cut": (
        "OutOfMemoryError                          Traceback (most recent call last)",
        ("undecided", "cuda-oom", None),
    ),
    "no room beside the weights": (
        "(EngineCore_DP0 pid=5) INFO 12-23 23:34:23 [gpu_worker.py:298] Available KV cache memory: -1.20 GiB",
        ("cause", "exception", "gpu-kv-cache-too-small"),
    ),
    "torch's handler": ("!!!!!!! Segfault encountered !!!!!!!", ("cause", "sigsegv", "other-software-error")),
    "a verbs call": (
        "n1:1:2 [0] misc/ibvwrap.cc:182 NCCL WARN Call to ibv_create_qp failed with error Invalid argument",
        ("cause", "exception", "comm-network-fabric"),
    ),
    "Ascend": (
        "EI0002: [PID: 7] The wait execution of the Notify register times out. Reason: The Notify register has not "
        "received the Notify record from remote rank: [unknown].",
        ("undecided", "collective-timeout", None),
    ),
    "at the store, behind a tokenizer": (
        "Tokenizing (num_proc=8):  92%|#########2| 328986/359152 [29:58<12:05, 41.59 examples/s]\n"
        "[rank1]:[W101 14:34:56.8 socket.cpp:489] [c10d] waitForInput: socket SocketImpl(fd=9) timed out after 1800000ms",
        ("cause", "collective-timeout", "comm-long-generation"),
    ),
    "a call trace without its verdict": (
        "[Wed Sep 29 07:12:20 2021] python3 invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0\n"
        "[Wed Sep 29 07:12:20 2021]  out_of_memory+0x109/0x510\n"
        "[Wed Sep 29 07:12:20 2021]  mem_cgroup_out_of_memory+0xbb/0xd0",
        ("cause", "kernel-oom-cgroup", "host-container-limit"),
    ),
    "a full state dict": (
        "INFO:torchtune.utils._logging:Saving checkpoint. This may take some time.\n"
        "INFO:torchtune.utils._logging:Getting optimizer state dict took 118.28 secs\n"
        "[rank4]:[E430 05:09:48.8 ProcessGroupNCCL.cpp:632] [Rank 4] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=9387, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600005 "
        "milliseconds before timing out.",
        ("cause", "collective-timeout", "comm-checkpoint-timeout"),
    ),
    "own process among the listed": (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 76.00 MiB. GPU 0 has a total capacity of 14.74 "
        "GiB of which 42.19 MiB is free. Process 19 has 284.00 MiB memory in use. Process 22 has 3.60 GiB memory in "
        "use. Process 16 has 10.77 GiB memory in use. Of the allocated memory 10.59 GiB is allocated by PyTorch, and "
        "42.23 MiB is reserved by PyTorch but unallocated.",
        ("cause", "cuda-oom", "gpu-foreign-process"),
    ),
    "the engine's warm-up": (
        "INFO 11-01 23:47:30 [gpu_worker.py:391] Desired GPU memory utilization is (0.92, 22.0 GiB).\n"
        '  File "/opt/vllm/v1/worker/gpu_model_runner.py", line 2874, in _dummy_sampler_run\n'
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 298.00 MiB. GPU 0 has a total capacity of 23.51 "
        "GiB of which 120.00 MiB is free.",
        ("cause", "cuda-oom", "gpu-rollout-reservation"),
    ),
    "quota": ("OSError: [Errno 122] Disk quota exceeded", ("cause", "exception", "other-disk-full")),
    "evicted for its disk": (
        "  Warning  Evicted  109s  kubelet  Pod ephemeral local storage usage exceeds the total limit of containers 5Gi.",
        ("cause", "other", "other-disk-full"),
    ),
    "a store in /tmp is no cause": (
        "WARNING: The object store is using /tmp instead of /dev/shm because /dev/shm has only 13509564416 bytes "
        "available.\nray.exceptions.NodeDiedError: Task failed due to the node (where this task was running) was dead.",
        ("undecided", "exception", None),
    ),
    "a bar and the kill on one line": (
        "Loading checkpoint shards:   0%|          | 0/2 [00:00<?, ?it/s]ERROR:torch.distributed.elastic.multiprocessing."
        "api:failed (exitcode: -9) local_rank: 4 (pid: 899509) of binary: /opt/bin/python",
        ("cause", "sigkill-unknown", "host-model-load"),
    ),
    "XLA": (
        "E1 00:10:32.9 30 pjrt_stream_executor_client.cc:2809] Execution of replica 0 failed: RESOURCE_EXHAUSTED: Out of "
        "memory while trying to allocate 1049100288 bytes.",
        ("undecided", "cuda-oom", None),
    ),
    "sglang's weights": (
        "ValueError: Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static=0.88.",
        ("cause", "exception", "gpu-kv-cache-too-small"),
    ),
    "UCX": (
        "[w-0:2121 :0:7025] Caught signal 7 (Bus error: nonexistent physical address)",
        ("cause", "sigbus", "shm-too-small"),
    ),
    "NaN in the sampler": (
        "RuntimeError: probability tensor contains either `inf`, `nan` or element < 0",
        ("cause", "exception", "other-software-error"),
    ),
    "old slurm": ("slurmstepd: error: Exceeded job memory limit", ("cause", "kernel-oom-cgroup", "host-container-limit")),
    "a spot machine": (
        "spot instance interruption notice: the instance will be terminated in 2 minutes",
        ("cause", "other", "other-killed-by-operator"),
    ),
    "a container's first process": (
        "OCI runtime create failed: starting container process caused: container init was OOM-killed (memory limit too low?)",
        ("cause", "kernel-oom-cgroup", "host-container-limit"),
    ),
    "a pool": (
        "concurrent.futures.process.BrokenProcessPool: A process in the process pool was terminated abruptly while the "
        "future was running or pending.",
        ("undecided", "sigkill-unknown", None),
    ),
    "Colab": ("Your session crashed after using all available RAM.", ("undecided", "sigkill-unknown", None)),
    "a lost node": ("Warning  NodeNotReady  2m  node-controller  Node is not ready", ("undecided", "other", None)),
    "llama.cpp": (
        "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 4096.00 MiB on device 0: cudaMalloc failed: out of memory",
        ("undecided", "cuda-oom", None),
    ),
    "no swap left in vLLM": (
        "RuntimeError: Aborted due to the lack of CPU swap space. Please increase the swap space to avoid this error.",
        ("cause", "exception", "gpu-kv-cache-too-small"),
    ),
    "earlyoom": (
        'Jul 18 08:23:17 n1 earlyoom[2608]: sending SIGTERM to process 25957 uid 0 "python": badness 711, VmRSS 52562 MiB',
        ("cause", "other", "host-oversubscribed"),
    ),
    "a full /dev/shm, by its path": (
        "OSError: [Errno 28] No space left on device: './ckpt-0/tensor_000' -> '/dev/shm/tmpeq5'",
        ("cause", "exception", "shm-too-small"),
    ),
    "optimizer.step": (
        "    self.optimizer.step()\ntorch.cuda.OutOfMemoryError: self.optimizer.step()CUDA out of memory. Tried to allocate "
        "0.54 GiB. GPU 6 has a total capacty of 39.39 GiB of which 90.06 MiB is free. Of the allocated memory 34.27 GiB is "
        "allocated by PyTorch, and 0.16 GiB is reserved by PyTorch but unallocated.",
        ("cause", "cuda-oom", "gpu-model-states"),
    ),
    "a socket of NCCL": (
        "n1:12:13 [5] misc/socket.cc:483 NCCL WARN socketStartConnect: Connect to fe80::1%ib1<17943> failed : Software "
        "caused connection abort",
        ("cause", "exception", "comm-network-fabric"),
    ),
    "a clone for the save": (
        "UserWarning: Failed to clone() tensor with name lm_head.weight. This may mean that this state_dict entry could "
        "point to invalid memory. Error: CUDA out of memory. Tried to allocate 982.00 MiB (GPU 0; 39.45 GiB total capacity; "
        "36.90 GiB already allocated; 800.00 MiB free; 37.80 GiB reserved in total by PyTorch)",
        ("cause", "cuda-oom", "gpu-checkpoint-spike"),
    ),
    "a peer that never joined": (
        "torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 1/2 clients joined.",
        ("undecided", "exception", None),
    ),
    "loaded, and killed later": (
        "Loading safetensors checkpoint shards: 100% Completed | 1/1 [00:01<00:00,  1.23s/it]\nINFO 11-20 10:45:57 "
        "gpu_executor.py:102] # GPU blocks: 12453, # CPU blocks: 2730\nKilled",
        ("undecided", "sigkill-unknown", None),
    ),
    "others on the GPU, by the sum": (
        "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 954.00 MiB (GPU 7; 79.21 GiB total capacity; "
        "49.63 GiB already allocated; 844.62 MiB free; 50.24 GiB reserved in total by PyTorch)",
        ("cause", "cuda-oom", "gpu-foreign-process"),
    ),
    "a model on its way to the GPU": (
        '  File "/opt/transformers/modeling_utils.py", line 936, in _load_state_dict_into_meta_model\nRuntimeError: NPU out '
        "of memory. Tried to allocate 386.00 MiB (NPU 2; 60.97 GiB total capacity; 59.57 GiB already allocated; 16.54 MiB "
        "free; 60.06 GiB reserved in total by PyTorch)",
        ("cause", "cuda-oom", "gpu-model-states"),
    ),
    "a cgroup's figures without the kill": (
        "[Thu Aug 16 09:05:19 2018] memory: usage 184320000kB, limit 184320000kB, failcnt 2316326",
        ("cause", "kernel-oom-cgroup", "host-container-limit"),
    ),
    "a save that had no memory": (
        "MemoryError\nRuntimeError: [enforce fail at inline_container.cc:319] . unexpected pos 61370825 vs 61370824",
        ("undecided", "exception", None),
    ),
    "docker inspect as YAML": ("ExitCode:137,\nOOMKilled:false,", ("undecided", "sigkill-unknown", None)),
    "ECC by CUDA's own name": (
        "failed call to cuDevicePrimaryCtxRetain: CUDA_ERROR_ECC_UNCORRECTABLE: uncorrectable ECC error encountered",
        ("cause", "exception", "other-gpu-hardware"),
    ),
    "Moab's memory limit": ("job 481516 exceeded MEM usage hard limit (2528 > 1126)", ("cause", "kernel-oom-cgroup", "host-container-limit")),
    "Moab's time limit": ("job 41 exceeded WALLTIME usage hard limit (86500 > 86400)", ("cause", "other", "other-killed-by-operator")),
    "NCCL's file in /dev/shm, without errno": (
        "node-a:1:1 [0] misc/shmutils.cc:72 NCCL WARN Error: failed to extend /dev/shm/nccl-AbCdEf to 9637892 bytes",
        ("cause", "exception", "shm-too-small"),
    ),
    "a verbs call without a reason": (
        "node-a:144:145 [0] ibvwrap.c:106 NCCL WARN Call to ibv_reg_mr failed",
        ("cause", "exception", "comm-network-fabric"),
    ),
    "memory that UCX could not lock": (
        "UCX  ERROR mlx5_1: ibv_reg_mr(length=131072) failed: Cannot allocate memory",
        ("cause", "exception", "host-pin-limit"),
    ),
    "UCX names the limit": (
        "ibv_create_cq : Please set max locked memory (ulimit -l) to 'unlimited' (current: 64 kbytes)",
        ("cause", "exception", "host-pin-limit"),
    ),
    "a thread that C++ could not make": (
        "libc++abi: terminating due to uncaught exception of type std::__1::system_error: thread constructor failed: Resource "
        "temporarily unavailable",
        ("cause", "exception", "other-process-limit"),
    ),
    "a probe that failed": (
        "Normal   Killing   25m   kubelet   Container trainer failed liveness probe, will be restarted",
        ("cause", "other", "other-killed-by-operator"),
    ),
    "a spot machine of Google's": (
        "start-worker 2026/01/17 16:03:58 GCP Metadata Service says termination is imminent",
        ("cause", "other", "other-killed-by-operator"),
    ),
    "the power button of a virtual machine": ("systemd-logind[812]: Power key pressed.", ("cause", "other", "other-killed-by-operator")),
    "a check of C++": (
        "F0215 15:19:50.617 39361 store.cc:340] Check failed: count > 0",
        ("undecided", "exception", None),
    ),
    "glog's report of a signal": (
        "*** SIGSEGV (@0x0) received by PID 99 (TID 0x7f837aeab800) from PID 0; stack trace: ***",
        ("cause", "sigsegv", "other-software-error"),
    ),
    "Plasma's own exception": (
        "pyarrow.lib.PlasmaStoreFull: object does not fit in the plasma store",
        ("cause", "object-store-full", "shm-object-store-full"),
    ),
    "a panic of Rust": (
        "thread 'main' panicked at 'called `Result::unwrap()` on an `Err` value: no tokenizer', router/src/main.rs:101:70",
        ("cause", "exception", "other-software-error"),
    ),
    "a worker of datasets' map": (
        "RuntimeError: One of the subprocesses has abruptly died during map operation.To debug the error, disable multiprocessing.",
        ("undecided", "sigkill-unknown", None),
    ),
    "macOS's shell, then the script's own end": (
        "./run.sh: line 32: 23001 Killed: 9               python train.py\nzsh: terminated  ./run.sh",
        ("undecided", "sigkill-unknown", None),
    ),
    "an assertion of a kernel": (
        "/opt/torch/aten/src/ATen/native/cuda/Indexing.cu:1146: indexSelectLargeIndex: block: [85,0,0], thread: [12,0,0] Assertion "
        "`srcIndex < srcSelectDimSize` failed.",
        ("cause", "exception", "other-software-error"),
    ),
    "a fault of an AMD GPU": (
        "Memory access fault by GPU node-9 (Agent handle: 0x7d5f990) on address 0x14a1cfe01000. Reason: Unknown.",
        ("undecided", "exception", None),
    ),
    "another process with a fifth of the GPU": (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 240.00 MiB. GPU 0 has a total capacity of 22.00 GiB of which "
        "10.00 MiB is free. Process 4387 has 5.00 GiB memory in use. Including non-PyTorch memory, this process has 16.99 GiB memory "
        "in use. Of the allocated memory 15.40 GiB is allocated by PyTorch, and 1.00 GiB is reserved by PyTorch but unallocated.",
        ("cause", "cuda-oom", "gpu-foreign-process"),
    ),
    "the only process listed is its own": (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 19.00 GiB. GPU 3 has a total capacity of 79.15 GiB of which "
        "17.15 GiB is free. Process 7872 has 62.00 GiB memory in use. Of the allocated memory 57.00 GiB is allocated by PyTorch, and "
        "4.10 GiB is reserved by PyTorch but unallocated.",
        ("undecided", "cuda-oom", None),
    ),
    "a port of the fabric, in newer words": (
        "node-2:311:405 [0] transport/net_ib.cc:199 NCCL WARN NET/IB : mlx5_3:1 Got async error event: port error",
        ("cause", "exception", "comm-network-fabric"),
    ),
    "what fails as the interpreter exits": (
        "[INFO:swift] End time of running main: 2026-03-23 09:29:36.599759\nTraceback (most recent call last):\n"
        '  File "/usr/lib/python3.11/weakref.py", line 667, in _exitfunc\n    f()\n'
        "OSError: [Errno 39] Directory not empty: '/tmp/hf_datasets-7b'",
        ("healthy", None, None),
    ),
    "a volume at /dev/shm": (
        'Usage of EmptyDir volume "dshm" exceeds the limit "512Mi".',
        ("cause", "other", "shm-too-small"),
    ),
    "a shard that a signal ended": (
        "ERROR shard-manager: text_generation_launcher: Shard process was signaled to shutdown with signal 9 rank=0",
        ("undecided", "sigkill-unknown", None),
    ),
    "the optimizer's states, the message cut": (
        'Traceback (most recent call last):\n  File "/opt/torch/optim/adamw.py", line 608, in _multi_tensor_adamw\n'
        "    exp_avg_sq_sqrt = torch._foreach_sqrt(exp_avg_sqs)\n"
        "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to all[...]",
        ("cause", "cuda-oom", "gpu-model-states"),
    ),
    "page-locking in IPython's report": (
        "File ~/unsloth/gradient_checkpointing.py:145, in Offloaded.forward(ctx, *args)\n"
        '--> 145     saved = hidden_states.to("cpu", non_blocking = True)\n\nRuntimeError: CUDA error: out of memory',
        ("cause", "cuda-oom", "host-pin-limit"),
    ),
    "a limit of Mesos": (
        "Memory limit exceeded: Requested: 128032MB Maximum Used: 128032MB MEMORY STATISTICS: cache 70078464",
        ("cause", "kernel-oom-cgroup", "host-container-limit"),
    ),
    "a CUDA failure that NCCL reports": (
        "node-a:2281:2290 [1] enqueue.cc:42 NCCL WARN Cuda failure 'named symbol not found'",
        ("undecided", "exception", None),
    ),
    "the first collective of all": (
        "".join(
            f"[Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1, OpType=ALLREDUCE, NumelIn=128, "
            "NumelOut=128, Timeout(ms)=600000) ran for 600009 milliseconds before timing out.\n"
            f"[PG 0 (default_pg) Rank {rank}] Exception (either an error or timeout) detected by watchdog at work: 1, last enqueued "
            "NCCL work: 1, last completed NCCL work: -1.\n"
            for rank in (2, 0, 1)
        ),
        ("cause", "collective-timeout", "comm-network-fabric"),
    ),
    "the first collective, and rank 0 has not come": (
        "".join(
            f"[Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1, OpType=ALLREDUCE, NumelIn=1, "
            "NumelOut=1, Timeout(ms)=600000) ran for 600009 milliseconds before timing out.\n"
            f"[PG 0 (default_pg) Rank {rank}] Exception (either an error or timeout) detected by watchdog at work: 1, last enqueued "
            "NCCL work: 1, last completed NCCL work: -1.\n"
            for rank in (1, 2)
        ),
        ("undecided", "collective-timeout", None),
    ),
    "a wait in the code of a checkpoint": (
        "[Rank 5] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=29, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, "
        "Timeout(ms)=600000) ran for 600014 milliseconds before timing out.\nStack trace of the failed collective:\n"
        "#0 all_reduce from /opt/torch/distributed/distributed_c10d.py:2806\n"
        "#2 sync_all_async_calls from /opt/megatron/core/dist_checkpointing/strategies/async_utils.py:149",
        ("cause", "collective-timeout", "comm-checkpoint-timeout"),
    ),
    "zsh": ("zsh: killed     python x.py", ("undecided", "sigkill-unknown", None)),
}


@pytest.mark.parametrize("name", LOGS)
def test_short_log(name: str, tmp_path: Path) -> None:
    """Verdict, killer and first cause of a log of one line."""
    text, expected = LOGS[name]
    (tmp_path / "job.log").write_text(f"{text}\n")
    incident = analyze([str(tmp_path / "job.log")])
    cause = incident.best.cause if incident.best and incident.verdict == "cause" else None
    assert (incident.verdict, incident.death.killer if incident.death else None, cause) == expected
