docker run --rm --shm-size=64m img python train.py
