#!/bin/bash
#SBATCH --mem=2860M
exec python -m trainer.train --config train.yaml --deepspeed ds.json
