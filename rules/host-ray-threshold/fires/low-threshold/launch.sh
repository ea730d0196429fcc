RAY_memory_usage_threshold=0.6 python3 train.py --steps 10
