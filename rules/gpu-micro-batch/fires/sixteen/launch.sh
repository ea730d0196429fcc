python3 -m verl.trainer.main_ppo \
  actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=16 \
  data.max_prompt_length=512 \
  data.max_response_length=1024 \
  trainer.nnodes=1
