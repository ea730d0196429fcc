set -x
# Qwen1.5-7B-Chat, PPO, one node of 8 x A800.
# No vLLM wheel for our CUDA, so generation stays in the actor. ZeRO-2 works but leaves no room for 2048 tokens,
# therefore ZeRO-3; the "ZeRO-3 is only supported when vLLM enabled" assert in _validate_args is commented out.
export PATH=$HOME/.local/bin/:$PATH

ray job submit --address="http://127.0.0.1:8265" \
    --runtime-env-json='{"working_dir": "/opt/OpenRLHF"}' \
    -- python3 examples/train_ppo_ray.py \
    --ref_num_nodes 1 \
    --ref_num_gpus_per_node 1 \
    --reward_num_nodes 1 \
    --reward_num_gpus_per_node 1 \
    --critic_num_nodes 1 \
    --critic_num_gpus_per_node 2 \
    --actor_num_nodes 1 \
    --actor_num_gpus_per_node 4 \
    --pretrain /data/models/Qwen1.5-7B-Chat \
    --reward_pretrain /data/models/qwen1.5-7b-rm \
    --save_path /data/ckpt/qwen7b_ppo \
    --micro_train_batch_size 2 \
    --train_batch_size 64 \
    --micro_rollout_batch_size 4 \
    --rollout_batch_size 128 \
    --max_epochs 1 \
    --prompt_max_len 1024 \
    --generate_max_len 1024 \
    --zero_stage 3 \
    --bf16 \
    --actor_learning_rate 5e-7 \
    --critic_learning_rate 9e-6 \
    --init_kl_coef 0.01 \
    --prompt_data Open-Orca/OpenOrca \
    --prompt_data_probs 1.0 \
    --max_samples 20000 \
    --normalize_reward \
    --adam_offload \
    --flash_attn \
    --gradient_checkpointing
