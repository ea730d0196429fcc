#!/bin/bash
export RAY_memory_monitor_refresh_ms=100
export RAY_memory_usage_threshold=0.114
exec python -m trainer.train --config train.yaml --deepspeed ds.json
