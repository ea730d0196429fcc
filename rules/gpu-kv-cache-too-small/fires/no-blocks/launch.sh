python3 -m verl.trainer.main_ppo \
  actor_rollout_ref.rollout.gpu_memory_utilization=0.3 \
  actor_rollout_ref.rollout.tensor_model_parallel_size=2 \
  trainer.nnodes=1
