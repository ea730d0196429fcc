#!/bin/bash
# EasyR1 0.3.0 (pip install -e .), one node of 8 x H800-80G, 1 TB RAM
set -x
cd /opt/EasyR1
python3 -m verl.trainer.main config=config.yaml trainer.n_gpus_per_node=8 2>&1 | tee driver.log
