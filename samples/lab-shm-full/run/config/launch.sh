#!/bin/bash
exec python -m trainer.train --config train.yaml --deepspeed ds.json
