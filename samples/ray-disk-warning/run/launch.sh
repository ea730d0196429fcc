RAY_local_fs_capacity_threshold=0.5 python job.py 14
