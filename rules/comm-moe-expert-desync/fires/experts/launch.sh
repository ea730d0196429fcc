python3 -m openrlhf.cli.train_ppo_ray --pretrain Qwen/Qwen3-30B-A3B --zero_stage 3 --bf16 --micro_train_batch_size 1
