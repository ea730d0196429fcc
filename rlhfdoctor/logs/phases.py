"""Step and phase marks in the log lines of OpenRLHF, verl, EasyR1 and TRL.

A mark does not say that something failed, only what the run was doing. `phase` of an event is
one of `types.Phase`; `step` is one PPO iteration.
"""

from __future__ import annotations

from rlhfdoctor.logs.pattern import Pattern, say
from rlhfdoctor.vocabulary import EVENT

PATTERNS: tuple[Pattern, ...] = (
    say(
        EVENT.phase.step,
        r"(?:^|[\s)])step:(?P<step>\d+) - ",
        "(main_task pid=40817) step:1 - response_length/mean:612.402 - response_length/max:8192.000",
        when="verl",
    ),
    say(
        EVENT.phase.load,
        r"INFO trainer: step (?P<step>\d+)(?:/\d+)? phase load\b",
        "2026-11-21 12:02:11,546 INFO trainer: step 0 phase load: 2 ranks, fused",
        when="the bundled trainer",
    ),
    say(
        EVENT.phase.rollout,
        r"INFO trainer: step (?P<step>\d+)(?:/\d+)? phase rollout\b",
        "2026-11-21 12:02:26,842 INFO trainer: step 1/3 phase rollout",
        when="the bundled trainer",
    ),
    say(
        EVENT.phase.score,
        r"INFO trainer: step (?P<step>\d+)(?:/\d+)? phase score\b",
        "2026-11-21 12:02:28,055 INFO trainer: step 1/3 phase score",
        when="the bundled trainer",
    ),
    say(
        EVENT.phase.update,
        r"INFO trainer: step (?P<step>\d+)(?:/\d+)? phase update\b",
        "2026-11-21 12:02:28,593 INFO trainer: step 1/3 phase update",
        when="the bundled trainer",
    ),
    say(
        EVENT.phase.weight_sync,
        r"INFO trainer: step (?P<step>\d+)(?:/\d+)? phase weight_sync\b",
        "2026-11-21 12:02:30,011 INFO trainer: step 1/3 phase weight_sync",
        when="the bundled trainer",
    ),
    say(
        EVENT.phase.checkpoint,
        r"INFO trainer: step (?P<step>\d+)(?:/\d+)? phase checkpoint\b",
        "2026-11-21 12:02:30,011 INFO trainer: step 1/3 phase checkpoint: saving to runs/ppo/checkpoints",
        when="the bundled trainer",
    ),
    say(
        EVENT.phase.step,
        r"Running step (?P<step>\d+):",
        "(pid=61840) Running step 3:   7%|▋         | 3.00/80.0 [1:38:05<19:20:41, 1.96ks/it]",
        when="EasyR1",
    ),
    say(
        EVENT.phase.step,
        r"Training Progress: +\d+%\|[^|]*\| (?P<step>\d+)/\d+",
        "(TaskRunner pid=101) Training Progress:   1%|          | 4/302 [02:10<2:41:01, 32.42s/it]",
        when="verl",
    ),
    say(
        EVENT.phase.episode,
        r"Episode \[(?P<episode>\d+)/\d+\]: +\d+%\|[^|]*\| (?P<step>\d+)/(?P<total_count>\d+)",
        "Episode [1/10000]:   7%|7         | 9/210 [2:51:33<63:48:10, 1142.70s/it, policy_loss=-0.087]",
        when="OpenRLHF",
    ),
    say(
        EVENT.phase.update,
        r"Train epoch \[\d+/\d+\]: +\d+%",
        "Train epoch [1/1]:  62%|#| 5/8 [01:12<00:43, 14.41s/it, pg=-0.412, rm=0.377]",
        when="OpenRLHF",
    ),
    say(
        EVENT.phase.update,
        r"actor_rollout_update_actor|\bupdate_actor\b|\bppo_train\b|training_step\b|Update policy|update_policy\b",
        "ray::WorkerDict.actor_rollout_update_actor() (pid=1)",
    ),
    say(
        EVENT.phase.rollout,
        r"Processed prompts: +\d+%\|[^|]*\| *(?P<done_count>\d+)/(?P<total_count>\d+) \[(?P<elapsed_text>[\d:]+)<"
        r"|Processed prompts: +\d+%|actor_rollout_generate_sequences|\bgenerate_sequences\b|Start generating|make_experience\b|make_sample",
        "Processed prompts:  85%|########5 | 870/1024 [03:19<00:35,  4.37it/s]",
    ),
    say(
        EVENT.phase.score,
        r"compute_ref_log_prob|compute_log_probs?\b|actor_rollout_compute_log_prob|base_action_log_probs|compute_values|Computing logprobs|compute_rm_score",
        "ray::WorkerDict.ref_compute_ref_log_prob() (pid=1)",
    ),
    say(
        EVENT.phase.weight_sync,
        r"sync_model_weights|broadcast_to_vllm|update_weights|sync_weights_to_inference_engines|sharding manager memory",
        "skyrl_train.weights_manager:__enter__:56 - Started: 'sync_weights_to_inference_engines'",
    ),
    say(
        EVENT.phase.checkpoint,
        r"Saving sharded model checkpoint|Saving model (?:checkpoint|to)|actor_rollout_save_checkpoint|save_checkpoint\b|Saved (?:model|optim|checkpoint) to|local_global_step_folder|save_ckpt",
        "(WorkerDict pid=18233, ip=10.0.0.11) Saving sharded model checkpoint to /ckpt/global_step_1/actor",
    ),
    say(
        EVENT.phase.checkpoint_load,
        r"Load from checkpoint folder|Resuming from|Loading the checkpoint|load_checkpoint\(|Loading from .{0,200}global_step",
        "(TaskRunner pid=7) Load from checkpoint folder: /ckpt/global_step_100",
    ),
    say(
        EVENT.phase.load,
        r"Loading checkpoint shards: +\d+%|init_model_from_pretrained|\binit_model\b|Loading safetensors checkpoint shards|Initializing language decoder|from_pretrained\(",
        "Loading checkpoint shards:  50%|#####     | 7/14 [00:12<00:12,  1.77s/it]",
    ),
    say(
        EVENT.phase.first_steps,
        r"(?P<note_text>(?:dies|died|crash\w*|killed|OOM)\b.{0,80}\bfirst optimizer step)",
        "crashed at micro step 16 of 16, in the first optimizer step",
    ),
    say(
        EVENT.phase.step,
        r"\{'loss': [-+.\deE]+, .{0,2000}'epoch': (?P<epoch_text>[.\d]+)\}",
        "{'loss': 0.0021, 'grad_norm': 0.4115, 'learning_rate': 9.5e-07, 'reward': 0.5312, 'kl': 0.0007, 'epoch': 0.03}",
        when="TRL and the Hugging Face trainer: one dictionary a logging step",
    ),
    say(
        EVENT.progress.long,
        r"\d{1,3}%\|[^|]{0,400}\| *[^ \[]{1,30}/[^ \[]{1,30} \[(?P<elapsed_text>(?:\d+:\d\d|[1-9]\d|09):\d\d)<(?P<left_text>\d[\d:]*)",
        "Indexing:  35%|###4      | 70911/204010 [41:07<1:17:12, 28.7it/s]",
        when="tqdm, from nine minutes on; a bar that never moved shows ? for the time left",
    ),
    say(
        EVENT.phase.finished,
        r"'train_runtime': |Training (?:completed|finished)|Job finished",
        "{'train_runtime': 18204.7719, 'train_samples_per_second': 0.447}",
    ),
    say(
        EVENT.host.used,
        r"perf/cpu_memory_used_gb:(?P<used_gib>[0-9.]+)",
        "step:3 - perf/max_memory_allocated_gb:41.2 - perf/cpu_memory_used_gb:612.25 - actor/lr:0.0",
        when="verl: psutil.virtual_memory().used / 1024**3",
    ),
    say(
        EVENT.gpu.used,
        r"perf/max_memory_(?P<what_text>allocated|reserved)_gb:(?P<used_gib>[0-9.]+)",
        "step:3 - perf/max_memory_allocated_gb:41.2 - perf/cpu_memory_used_gb:612.25",
    ),
)
