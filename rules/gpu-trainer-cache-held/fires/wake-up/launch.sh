ray job submit --address=http://127.0.0.1:8265 -- python3 -m openrlhf.cli.train_ppo_ray \
   --pretrain /models/Qwen2.5-7B \
   --zero_stage 3 \
   --adam_offload \
   --micro_train_batch_size 2 \
   --vllm_num_engines 4 \
   --vllm_enable_sleep \
   --vllm_gpu_memory_utilization 0.6 \
   --bf16
