#!/bin/bash
#SBATCH --mem=2400M
exec python -m trainer.train --config train.yaml --deepspeed ds.json
