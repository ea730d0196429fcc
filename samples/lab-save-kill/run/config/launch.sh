#!/bin/bash
#SBATCH --mem=2900M
exec python -m trainer.train --config train.yaml --deepspeed ds.json
