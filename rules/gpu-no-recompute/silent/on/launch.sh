python3 -m openrlhf.cli.train_ppo_ray \
  --pretrain meta-llama/Llama-3.1-8B \
  --zero_stage 2 \
  --micro_train_batch_size 2 \
  --gradient_checkpointing \
  --bf16
