"""A small, readable PPO trainer on the real stack (Ray, DeepSpeed, transformers, vLLM), with the incident lab."""
