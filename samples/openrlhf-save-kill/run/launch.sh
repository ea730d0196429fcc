#!/bin/bash
# PPO of Baichuan2-13B-Chat on the one A100 box (8 x 80 GB, 1 TB), 4 actors + 2 critics + ref + rm
set -x

docker run -d --name ppo \
    --gpus all --ulimit memlock=-1 \
    --memory=500g --shm-size=16g \
    -v /data:/data -v /ckpt:/ckpt -v $PWD:/openrlhf -w /openrlhf \
    nvcr.io/nvidia/pytorch:23.10-py3 sleep infinity

docker exec ppo ray start --head --node-ip-address 172.17.0.2 --num-gpus 8

docker exec ppo ray job submit --address="http://127.0.0.1:8265" \
    --runtime-env-json='{"working_dir": "/openrlhf", "excludes": ["/ckpt"]}' \
    -- python3 examples/train_ppo_ray.py \
    --ref_num_nodes 1 \
    --ref_num_gpus_per_node 1 \
    --reward_num_nodes 1 \
    --reward_num_gpus_per_node 1 \
    --critic_num_nodes 1 \
    --critic_num_gpus_per_node 2 \
    --actor_num_nodes 1 \
    --actor_num_gpus_per_node 4 \
    --pretrain /data/models/Baichuan2-13B-Chat \
    --reward_pretrain /data/models/baichuan2-7b-rm-v3 \
    --save_path /ckpt/baichuan2_13b_ppo \
    --micro_train_batch_size 4 \
    --train_batch_size 128 \
    --micro_rollout_batch_size 8 \
    --rollout_batch_size 1024 \
    --num_episodes 1 \
    --max_epochs 1 \
    --prompt_max_len 1024 \
    --generate_max_len 1024 \
    --zero_stage 2 \
    --bf16 \
    --actor_learning_rate 5e-7 \
    --critic_learning_rate 9e-6 \
    --init_kl_coef 0.01 \
    --prompt_data /data/prompts/hh_zh.jsonl \
    --prompt_data_probs 1.0 \
    --max_samples 8192 \
    --normalize_reward \
    --actor_init_on_gpu \
    --adam_offload \
    --flash_attn \
    --gradient_checkpointing
    # --use_wandb True
