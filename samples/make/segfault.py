"""ray-segfault: an actor writes through a NULL pointer in native code."""

import session


def main() -> None:
    run = session.run("native_call.py", "python job.py\n")
    assert "SIGSEGV" in run.log_text() or "Segmentation fault" in run.log_text(), "no SIGSEGV was reported"
    run.keep(
        "ray-segfault",
        {
            "kind": "decidable",
            "verdict": "cause",
            "killer": "sigsegv",
            "accept": ["other-software-error"],
            "story": """In step 3 the Trainer actor calls memset on address 0 through ctypes. Its process dies of
                SIGSEGV and prints the stack; the driver sees Ray's vanished-worker text, which names the OOM
                killer as its first guess. No memory was short.""",
        },
    )


if __name__ == "__main__":
    main()
