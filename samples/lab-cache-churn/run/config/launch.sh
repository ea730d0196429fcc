#!/bin/bash
#SBATCH --mem=3300M
exec python -m trainer.train --config train.yaml --deepspeed ds.json
