"""Python tracebacks, faulthandler dumps, fatal signals, from any program."""

from __future__ import annotations

from rlhfdoctor.logs.pattern import Pattern, line
from rlhfdoctor.vocabulary import EVENT

PATTERNS: tuple[Pattern, ...] = (
    line(
        EVENT.python.traceback,
        r"Traceback \(most recent call last\):",
        "Traceback (most recent call last):",
    ),
    line(
        EVENT.python.frame,
        r"File \"(?P<path_text>[^\"]{1,300})\", line (?P<line>\d+)(?:,? in (?P<function_text>[\w<>.]+))?",
        '  File "/opt/verl/workers/fsdp_workers.py", line 527, in update_actor',
        follow=1,
    ),
    line(
        EVENT.python.frame,
        r"^ +(?P<function_text>[\w<>]+) \((?P<path_text>[\w./-]{1,200}\.pyx?):(?P<line>\d+)\)",
        "    generate (transformers/generation/utils.py:1592)",
        when="py-spy dump",
    ),
    line(
        EVENT.python.frame,
        r"^\W{0,4}File (?P<path_text>[~/][^\s:]{1,300}\.py):(?P<line>\d{1,6}),? in (?P<function_text>[\w<>.]{1,100})",
        "File ~/venv/lib/python3.11/site-packages/torch/cuda/amp/autocast_mode.py:115, in custom_fwd(*args, **kwargs)",
        when="IPython's core/ultratb.py, 8 and newer",
    ),
    line(
        EVENT.python.frame,
        r"(?:^|\s)#\d{1,3} (?P<function_text>[\w<>.]{1,100}) from (?P<path_text>[^\s:]{1,300}):(?P<line>\d{1,6})",
        "#2 sync_all_async_calls from /opt/megatron/core/dist_checkpointing/strategies/async_utils.py:149",
        when="Stack trace of the failed collective (torch's ProcessGroupNCCL.cpp, 2.5 and newer)",
    ),
    line(
        EVENT.python.frame,
        r"^-{2,5}> ?(?P<line>\d{1,6}) {1,60}\S",
        "--> 115     return fwd(*args, **kwargs)",
        when="IPython's core/ultratb.py: the line of code of the frame above",
    ),
    line(
        EVENT.python.error,
        r"(?:^|[\s:)|\]])(?P<name>(?:[A-Za-z_]\w*\.)*(?:[A-Z]\w*(?:Error|Exception|Interrupt)|ChildFailedError))"
        r"(?:\([^)\n]*\))?: (?P<message_text>.{1,300})",
        "AttributeError: 'DeepSpeedEngine' object has no attribute 'reload_states'",
    ),
    line(
        EVENT.python.bare_error,
        r"^(?:\([^)]*\) )?(?:\[rank\d+\]: ?)?(?P<name>(?:[A-Za-z_]\w*\.)*[A-Z]\w*Error)\s*$",
        "AssertionError",
    ),
    line(
        EVENT.python.error,
        r"^(?:\([^)]*\) )?(?:\[rank\d+\]: ?)?(?P<name>Exception): (?P<message_text>.{1,300})",
        "Exception: the worker returned nothing",
    ),
    line(
        EVENT.python.bare_error,
        r"^(?P<name>[A-Z]\w{1,60}(?:Error|Exception)) {3,60}Traceback \(most recent call last\)",
        "ValueError                                Traceback (most recent call last)",
        when="IPython's core/ultratb.py: the first line of a report whose last has the message",
    ),
    line(
        EVENT.python.swallowed,
        r"^(?:\([^)\n]{0,80}\) ?)?(?:Exception ignored in[ :]|[^\n]{0,80}\bexception was never retrieved)",
        "Exception ignored in: <function _ConnectionBase.__del__ at 0x7f2b1c0d3a60>",
        when="Python/errors.c, PyErr_WriteUnraisable; asyncio/tasks.py and futures.py, __del__",
    ),
    line(
        EVENT.python.fatal,
        r"Fatal Python error: (?P<error_text>Segmentation fault|Bus error|Aborted|Floating point exception"
        r"|Illegal instruction|none_dealloc)",
        "(pid=6120) Fatal Python error: Bus error",
    ),
    line(
        EVENT.python.fatal,
        r"!{3,9} (?P<error_text>Segfault) encountered !{3,9}",
        "!!!!!!! Segfault encountered !!!!!!!",
        when="c10/util/signal_handler.cpp",
    ),
    line(
        EVENT.python.fatal,
        r"Caught signal 7 \((?P<error_text>Bus error)",
        "[node-0:2121 :0:7025] Caught signal 7 (Bus error: nonexistent physical address)",
        when="UCX, src/ucs/debug/debug.c",
    ),
    line(
        EVENT.python.pool_broken,
        r"A process in the process pool was terminated abruptly"
        r"|A worker process managed by the executor was unexpectedly terminated"
        r"|One of the subprocesses has abruptly died during map operation",
        "concurrent.futures.process.BrokenProcessPool: A process in the process pool was terminated abruptly while the "
        "future was running or pending.",
        when="concurrent/futures/process.py, joblib's loky, datasets' utils/py_utils.py",
    ),
    line(
        EVENT.python.notebook_died,
        r"[Yy]our notebook tried to allocate more memory than is available"
        r"|[Yy]our session crashed after using all available RAM"
        r"|kernel appears to have died\. It will restart",
        "Your session crashed after using all available RAM.",
        when="Kaggle, Colab, Jupyter",
    ),
    line(
        EVENT.python.signal,
        r"\*\*\* (?P<name>SIG[A-Z]+) (?:received at|\(@0x[0-9a-f]{1,16}\) received by PID)|Process received signal.*"
        r"|(?P<core_text>Segmentation fault|Bus error|Aborted) \(core dumped\)",
        "*** SIGSEGV received at time=1743606120 on cpu 3 ***",
    ),
    line(
        EVENT.python.abort,
        r"terminate called after throwing an instance of '(?P<error_text>[^']+)'"
        r"|Unhandled exception: (?P<boost_text>\S+)"
        r"|You have likely discovered a bug in Ray\. [^\n]{0,120}? Check failed: ",
        "terminate called after throwing an instance of 'c10::DistBackendError'",
    ),
    line(
        EVENT.python.abort,
        r"(?:\bF\d{4} [^\]\n]{1,80}\]|\b[CF] \d+ \d+\] (?:\(\w{1,20}\) )?[\w./-]{1,120}:\d+:) +"
        r"Check failed: (?P<error_text>.{1,200})",
        "[2021-02-15 15:19:50,617 C 39361 39361] local_object_manager.cc:340:  Check failed: count > 0",
        when="glog and abseil, which then end the process by SIGABRT",
    ),
    line(
        EVENT.python.error,
        r"\bthread 'main' (?P<name>panicked) at (?P<message_text>.{1,300})",
        "thread 'main' panicked at 'called `Option::unwrap()` on a `None` value', src/main.rs:40:5",
        when="Rust's std::panicking",
    ),
    line(
        EVENT.python.logits_code,
        r"log_softmax|logits\.float\(|cross_entropy\(|log_?probs_from_logits|entropy_from_logits|logits\.clone\("
        r"|\.softmax\(|in softmax|selective_log_softmax"
        r"|float16_to_fp32|calculate_log_probs_and_entropy",
        "    logps = logits.log_softmax(dim=-1)",
    ),
    line(
        EVENT.python.memory_error,
        r"(?:^|\s)MemoryError\b|Cannot allocate memory|_ArrayMemoryError"
        r"|C10 Out of Memory\. Trying to allocate|Failure to allocate memory for a message header"
        r"|DefaultCPUAllocator: (?:can't|not enough) .{0,20}?allocat\w+ (?:memory|(?P<request_bytes>\d+) bytes)",
        "OSError: [Errno 12] Cannot allocate memory",
    ),
)
