python3 -m verl.trainer.main_ppo \
    algorithm.adv_estimator=grpo \
    reward.num_workers=16 \
    trainer.nnodes=1
