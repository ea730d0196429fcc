python3 -m verl.trainer.main_ppo \
  actor_rollout_ref.rollout.free_cache_engine=True \
  actor_rollout_ref.rollout.swap_space=40 \
  actor_rollout_ref.rollout.micro_rollout_batch_size=1024 \
  actor_rollout_ref.rollout.n=8 # samples
