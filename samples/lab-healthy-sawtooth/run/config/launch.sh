#!/bin/bash
#SBATCH --mem=4G
exec python -m trainer.train --config train.yaml --deepspeed ds.json
