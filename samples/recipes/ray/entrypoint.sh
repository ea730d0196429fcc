#!/bin/bash
# Entry point of a Ray job: records the driver and the workers of its node, and prints the verdict into the job's log.
#   ray job submit --working-dir . -- bash entrypoint.sh python train.py --config ppo.yaml
# The other nodes of the cluster: doctor watch --ray, from anywhere that reaches the cluster.
set -eu
[ $# -gt 0 ] || { echo "usage: bash entrypoint.sh COMMAND..." >&2; exit 2; }
runs=${DOCTOR_RUNS:-$HOME/doctor-runs}        # not the working folder: Ray removes it with the job
exec doctor watch --no-view --out "$runs/$(date -u +%Y%m%dT%H%M%SZ)" -- "$@"
