#!/bin/bash
# Qwen2.5-72B, REINFORCE with a remote rule reward. 4 nodes x 8 H100, 1.4 TB RAM each, no swap.
#   10.0.0.4 head + vLLM   10.0.0.5 actor   10.0.0.6 reference   10.0.0.7 vLLM
#   2024-12-19: after the crash in the first step pin_memory is False (offload_optimizer in
#   openrlhf/utils/deepspeed/deepspeed_utils.py edited on all nodes) and --grad_accum_dtype fp32 dropped; 20 steps went fine.
#   2024-12-21: restart from global_step20
set -x
# memory monitor is on again (default), the kernel took the whole node with it last time
# on the head: ray start --head --port 6379 --num-gpus 8 ; on the others: ray start --address 10.0.0.4:6379 --num-gpus 8

ray job submit --address="http://127.0.0.1:8265" \
   --runtime-env-json='{"working_dir": "/mnt/share/openrlhf-run"}' \
   -- python3 -m openrlhf.cli.train_ppo_ray \
   --ref_num_nodes 1 \
   --ref_num_gpus_per_node 8 \
   --actor_num_nodes 1 \
   --actor_num_gpus_per_node 8 \
   --vllm_num_engines 4 \
   --vllm_tensor_parallel_size 4 \
   --vllm_sync_backend nccl \
   --advantage_estimator reinforce \
   --remote_rm_url http://10.0.0.4:5000/get_reward \
   --pretrain /mnt/share/models/Qwen2.5-72B-Instruct \
   --save_path /mnt/share/ckpt/qwen72b-rl \
   --ckpt_path /mnt/share/ckpt/qwen72b-rl/ds \
   --save_steps 10 \
   --logging_steps 1 \
   --micro_train_batch_size 1 \
   --train_batch_size 128 \
   --micro_rollout_batch_size 2 \
   --rollout_batch_size 1024 \
   --max_samples 100000 \
   --max_epochs 1 \
   --num_episodes 1 \
   --prompt_max_len 1024 \
   --generate_max_len 2048 \
   --zero_stage 3 \
   --bf16 \
   --adam_offload \
   --flash_attn \
   --gradient_checkpointing \
   --load_checkpoint \
   --actor_learning_rate 5e-7 \
   --init_kl_coef 0.01 \
   --prompt_data /mnt/share/data/math_mix.jsonl \
   --input_key problem \
   --apply_chat_template \
   --use_tensorboard /mnt/share/tb
