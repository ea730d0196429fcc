#!/bin/bash
#SBATCH --mem=12G
exec python -m trainer.train --config train.yaml --deepspeed ds.json
