#!/bin/bash
#SBATCH --mem=3600M
exec python -m trainer.train --config train.yaml --deepspeed ds.json
