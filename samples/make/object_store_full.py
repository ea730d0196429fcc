"""ray-object-store-full: references to 240 MB of rollouts are held in an object store of 100 MB.

Spilling is off and the session folder, where Ray would put objects that do not fit (fallback
allocation), is a file system of 64 MB. Since Ray allocates from disk before it gives up, a full
store surfaces as OutOfDiskError there, not as ObjectStoreFullError.
"""

import session


def main() -> None:
    run = session.run("rollouts.py", "python job.py\n", session_disk=64 * session.MIB)
    assert "Plasma store at capacity" in run.log_text(), "the store was not full"
    assert "OutOfDiskError" in run.driver_log or "ObjectStoreFullError" in run.driver_log
    run.keep(
        "ray-object-store-full",
        {
            "kind": "decidable",
            "verdict": "cause",
            "killer": "object-store-full",
            "accept": ["shm-object-store-full", "other-disk-full"],
            "story": """job.py gives Ray an object store of 100 MB with spilling off and holds references to
                batch after batch of 20 MB. The store is full at the fifth; Ray then allocates from the session
                folder's file system (64 MB) until that is full too, and ray.put raises. Ray 2.60 words this as
                OutOfDiskError although the store is what is too small, so other-disk-full is accepted second.""",
        },
        with_files=("launch.sh", "job.py"),
    )


if __name__ == "__main__":
    main()
