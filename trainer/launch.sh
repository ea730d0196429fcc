#!/bin/bash
# One training under `doctor watch`: bash trainer/launch.sh [CONFIG.yaml] [section.key=value]...
# On more than one node: `ray start` on each, and RAY_ADDRESS=auto here.
#SBATCH --cpus-per-task=2
#SBATCH --mem=8G
set -euo pipefail
cd "$(dirname "$0")/.."
exec doctor watch -- python -m trainer.train --config "${1:-trainer/configs/cpu-tiny.yaml}" "${@:2}"
