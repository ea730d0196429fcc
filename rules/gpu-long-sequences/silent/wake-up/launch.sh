python3 -m verl.trainer.main_ppo \
  data.max_prompt_length=22000 \
  data.max_response_length=4096 \
  trainer.nnodes=1
