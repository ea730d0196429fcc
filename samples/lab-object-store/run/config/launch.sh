#!/bin/bash
export RAY_automatic_object_spilling_enabled=0
exec python -m trainer.train --config train.yaml --deepspeed ds.json
