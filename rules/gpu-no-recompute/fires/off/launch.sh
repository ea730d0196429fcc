python3 -m openrlhf.cli.train_ppo_ray \
  --pretrain meta-llama/Llama-3.1-8B \
  --zero_stage 2 \
  --micro_train_batch_size 2 \
  --train_batch_size 64 \
  --bf16 \
  --actor_num_gpus_per_node 8
