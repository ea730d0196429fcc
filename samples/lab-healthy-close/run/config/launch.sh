#!/bin/bash
#SBATCH --mem=2200M
exec python -m trainer.train --config train.yaml --deepspeed ds.json
