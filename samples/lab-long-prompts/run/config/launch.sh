#!/bin/bash
#SBATCH --mem=4800M
exec python -m trainer.train --config train.yaml --deepspeed ds.json
