#!/bin/bash
#SBATCH --mem=4250M
exec python -m trainer.train --config train.yaml --deepspeed ds.json
