RAY_memory_usage_threshold=0.08 python job.py
