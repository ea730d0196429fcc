#!/bin/bash
# A job that checks its memory before it takes the nodes' time, and records itself. Needs nothing of the administrator.
#SBATCH --job-name=ppo
#SBATCH --nodes=1
#SBATCH --mem=900G
#SBATCH --output=ppo-%j.out
set -eu
script=${1:-launch.sh}
# --brief ends with 1 where it will not fit, and with 2 where the settings cannot be read; only the first stops the job.
doctor estimate --brief "$script" || [ $? -ne 1 ]
exec doctor watch --no-view --out "doctor-runs/$SLURM_JOB_ID" -- bash "$script"
