"""What lies in the folder of a run without being its text, by name."""

from __future__ import annotations

SKIPPED_FOLDERS = frozenset({".git", "__pycache__", ".venv", "node_modules", "runtime_resources"})
SKIPPED_ENDINGS = (
    ".pyc",
    ".so",
    ".o",
    ".a",
    ".whl",
    ".pt",
    ".pth",
    ".bin",
    ".safetensors",
    ".npy",
    ".npz",
    ".pkl",
    ".pickle",
    ".parquet",
    ".arrow",
    ".png",
    ".jpg",
    ".jpeg",
    ".pdf",
    ".mp4",
    ".ckpt",
    ".onnx",
    ".gguf",
    ".db",
    ".sqlite",
    ".sock",
    ".pid",
    ".distcp",
)
