python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo actor_rollout_ref.rollout.n=8 actor_rollout_ref.model.path=/models/Qwen2.5-7B
