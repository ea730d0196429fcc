"""The rollout engine's memory: its cache blocks, its sleep, its backup on the host."""

from __future__ import annotations

from collections.abc import Iterator

from rlhfdoctor.evidence.case import Case, fact, number, whole
from rlhfdoctor.i18n.message import plural, say
from rlhfdoctor.types import Evidence
from rlhfdoctor.vocabulary import EVENT, FACT, FIELD, TRAIT


def find_engine(case: Case) -> Iterator[Evidence]:
    """The rollout engine: cache blocks, sleep, backup of weights on the host, GPU already taken."""
    backups = case.of(EVENT.vllm.sleep_backup)
    if backups:
        largest = max(whole(e, FIELD.backup_bytes) or 0 for e in backups)
        pids = {e.origin.pid for e in backups if e.origin.pid} or set()
        count = max(len(pids), 1, sum(e.repeats_count for e in backups[:1]))
        yield fact(
            FACT.engine.backup_bytes,
            largest * count,
            say(
                "{engines} keep {each:bytes} each in host memory: {together:bytes}",
                engines=plural("{n} sleeping engine", "{n} sleeping engines", count),
                each=largest,
                together=largest * count,
            ),
            backups[0],
        )
        kill = case.first(EVENT.ray.memory_kill)
        total = whole(kill, FIELD.total_bytes)
        if total:
            yield fact(
                FACT.engine.backup_ratio,
                largest * count / total,
                say("that is {largest:share} of the node", largest=largest * count / total),
                backups[0],
            )
    if case.framework is not None and case.has(TRAIT.engine_colocated):
        yield Evidence(
            name=FACT.engine.colocated,
            value=True,
            says=say("{name} runs engine and trainer on the same GPUs", name=case.framework.name),
        )
    sleeps = case.of(EVENT.vllm.sleep)
    if sleeps:
        least = min(whole(e, FIELD.freed_bytes) or 0 for e in sleeps)
        yield fact(
            FACT.engine.sleep_freed_bytes,
            least,
            say("a falling-asleep engine freed {least:bytes}", least=least),
            sleeps[0],
        )
    blocks = case.first(EVENT.vllm.blocks)
    if blocks is not None:
        yield fact(
            FACT.engine.gpu_block_count,
            whole(blocks, FIELD.gpu_count),
            say("{gpu_count} GPU cache blocks", gpu_count=whole(blocks, FIELD.gpu_count)),
            blocks,
        )
        cpu = whole(blocks, FIELD.cpu_count)
        yield fact(FACT.engine.cpu_block_count, cpu, say("{cpu} CPU swap blocks", cpu=cpu), blocks)
    frees = case.of(EVENT.vllm.cache_freed)
    if frees:
        builds = sum(1 for e in frees if "before" in str(e.fields.get(FIELD.when_text)) and "init cache" in e.text)
        yield fact(
            FACT.engine.cache_build_count,
            builds,
            say("the engine rebuilt its cache {times}", times=plural("{n} time", "{n} times", builds)),
            frees[-1],
        )
    profiled = case.first(EVENT.sglang.profiled)
    value = number(profiled, FIELD.profiled)
    if profiled is not None and value is not None:
        yield fact(
            FACT.engine.profiled_tokens, value, say("the KV cache would hold {tokens} tokens", tokens=value), profiled
        )
