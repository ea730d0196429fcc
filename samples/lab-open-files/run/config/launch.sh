#!/bin/bash
ulimit -n 1024
exec python -m trainer.train --config train.yaml --deepspeed ds.json
