python job.py
