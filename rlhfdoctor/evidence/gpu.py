"""A failed allocation on a GPU: its size, what was free, which code requested it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from rlhfdoctor.budget.shapes import find_shape
from rlhfdoctor.evidence.case import Case, fact, whole
from rlhfdoctor.i18n.message import say
from rlhfdoctor.logs.torch import read_cuda_oom
from rlhfdoctor.plugins import folders
from rlhfdoctor.types import Event, Evidence, Value
from rlhfdoctor.vocabulary import EVENT, FACT, FIELD

_SITES: tuple[tuple[str, re.Pattern[str]], ...] = (
    (
        "pin",
        re.compile(
            r"\bin _?pin_memory\b|\.pin_memory\(|^\s*pin_memory \(|cudaHostAlloc|cudaHostRegister"
            r"|\.to\(\W{0,3}cpu\W{0,3}, {0,2}non_blocking ?= ?True"
        ),
    ),
    ("wake", re.compile(r"wake_up|cumem|backload|cu_mem_create|torch_memory_saver|resume_memory_occupation")),
    (
        "weight_sync",
        re.compile(
            r"sync_model_weights|load_dtensor_weights|broadcast_to_vllm|update_weights?\b|summon_full"
            r"|unwrap_model_for_generation|GatheredParameters|merge_adapter"
        ),
    ),
    (
        "model_load",
        re.compile(r"_load_state_dict_into_meta_model|_load_pretrained_model|set_module_tensor_to_device"),
    ),
    (
        "checkpoint",
        re.compile(
            r"save_checkpoint|load_state_dict|save_pretrained|_save_state|_save_to_state_dict|load_checkpoint"
            r"|Failed to clone\(\) tensor|from state_dict\(\)"
        ),
    ),
    (
        "logits",
        re.compile(
            r"log_?softmax|logits|entropy|log_?probs_from|cross_entropy|float16_to_fp32|float_conversion"
            r"|conversion_helper|convert_to_fp32|get_per_token_logps|in softmax|in vocab_parallel"
        ),
    ),
    (
        "engine_start",
        re.compile(r"_dummy_sampler_run|capture_model|compile_or_warm_up_model|when warming up|cuda_?graph"),
    ),
    ("kv_cache", re.compile(r"initialize_cache|init_cache|determine_num_available|profile_run|allocate_kv")),
    (
        "optimizer",
        re.compile(
            r"optimizer_step|optimizer\.step\(\)|exp_avg|optim/adam|_single_tensor_adam|_multi_tensor|init_group|initialize_optimizer_states"
        ),
    ),
    (
        "model_load",
        re.compile(
            r"from_pretrained|\bconvert\b|init_model|_init_weights|module\.py\", line \d+, in (?:to|cuda)\b|load_model"
        ),
    ),
    ("attention", re.compile(r"scaled_dot_product_attention|attention_forward|attn_weights|attention_scores")),
    ("backward", re.compile(r"backward\b|autograd")),
    ("generate", re.compile(r"generate\b|generate_sequences|\bsample\b")),
)
_LARGEST_GPU_BYTES = 2 * 1024**4
"""More than any GPU has; a request above is a wrong shape, not a shortage."""
_ERRORS = (
    EVENT.vllm.wake_oom,
    EVENT.torch.pin_failed,
    EVENT.torch.cuda_error,
    EVENT.torch.cuda_oom_class,
    EVENT.nccl.cuda_oom,
    EVENT.ray.task_error,
    EVENT.ray.unhandled_task_error,
)
"""Lines at the inner end of a traceback."""

Sizes = Mapping[str, Value]
"""What an error line says of the GPU, by the names of `read_cuda_oom`."""


def find_cuda(case: Case) -> Iterator[Evidence]:
    """Sizes of the first CUDA OOM error, and what they mean."""
    event = case.first(EVENT.torch.cuda_oom)
    if event is not None:
        yield from _sizes(event)
        yield from _logits(case, event)
    place = event or case.first(*_ERRORS) or case.first(EVENT.python.traceback)
    if place is not None:
        site = _site(case, place)
        if site is not None:
            yield fact(FACT.cuda.site, site[0], say("the allocation was asked for in {place}", place=site[1]), place)


def _sizes(event: Event) -> Iterator[Evidence]:
    """The request against what the error line says of the GPU."""
    request = whole(event, FIELD.request_bytes)
    sizes = read_cuda_oom(" ".join((event.text, *event.after)))
    if request is None:
        return
    yield fact(
        FACT.cuda.impossible,
        request > _LARGEST_GPU_BYTES,
        say("{request:bytes} were asked for", request=request),
        event,
    )
    yield fact(
        FACT.cuda.request_bytes, request, say("the failing allocation was {request:bytes}", request=request), event
    )
    yield from _whole_gpu(event, request, sizes)
    yield from _unallocated(event, request, sizes)
    yield from _others(event, sizes)


def _whole_gpu(event: Event, request: int, sizes: Sizes) -> Iterator[Evidence]:
    """The request, what PyTorch had allocated, what others held: as shares of the GPU."""
    total, allocated = sizes.get("total_bytes"), sizes.get("allocated_bytes")
    if not isinstance(total, int) or not total:
        return
    yield fact(FACT.cuda.total_bytes, total, say("the GPU has {total:bytes}", total=total), event)
    yield fact(
        FACT.cuda.request_ratio,
        request / total,
        say("the request is {request:share} of the GPU", request=request / total),
        event,
    )
    if isinstance(allocated, int):
        yield fact(
            FACT.cuda.allocated_ratio,
            allocated / total,
            say("PyTorch had {allocated:bytes} of {total:bytes} allocated", allocated=allocated, total=total),
            event,
        )
    own, free, unallocated = (sizes.get(f"{name}_bytes") for name in ("own", "free", "unallocated"))
    if isinstance(own, int) and isinstance(free, int) and own:
        foreign = max(total - free - own, 0)
        yield fact(
            FACT.cuda.foreign_ratio,
            foreign / total,
            say("{foreign:bytes} of the GPU belong to other processes", foreign=foreign),
            event,
        )
    elif isinstance(allocated, int) and isinstance(free, int) and isinstance(unallocated, int):
        foreign = max(total - free - allocated - unallocated, 0)
        yield fact(
            FACT.cuda.outside_ratio,
            foreign / total,
            say(
                "{foreign:bytes} of the GPU are not PyTorch's: other processes, the rollout engine, NCCL and CUDA",
                foreign=foreign,
            ),
            event,
        )


def _unallocated(event: Event, request: int, sizes: Sizes) -> Iterator[Evidence]:
    """What PyTorch had reserved without use, and whether that would have held the request."""
    total, free, unallocated = (sizes.get(f"{name}_bytes") for name in ("total", "free", "unallocated"))
    if not isinstance(unallocated, int):
        return
    yield fact(
        FACT.cuda.unallocated_covers,
        unallocated >= request,
        say(
            "{unallocated:bytes} unallocated against a request of {request:bytes}",
            unallocated=unallocated,
            request=request,
        ),
        event,
    )
    if isinstance(total, int) and total:
        yield fact(
            FACT.cuda.unallocated_ratio,
            unallocated / total,
            say("{unallocated:share} of the GPU was reserved but unallocated", unallocated=unallocated / total),
            event,
        )
    spare = unallocated + (free if isinstance(free, int) else 0)
    yield fact(
        FACT.cuda.unallocated_bytes,
        unallocated,
        say("{unallocated:bytes} were reserved by PyTorch but unallocated", unallocated=unallocated),
        event,
    )
    yield fact(
        FACT.cuda.fragmented,
        spare >= request,
        say(
            "free and reserved-but-unallocated memory ({spare:bytes}) would have held the request of {request:bytes}",
            spare=spare,
            request=request,
        )
        if spare >= request
        else say(
            "free and reserved-but-unallocated memory ({spare:bytes}) would not have held the request of "
            "{request:bytes}",
            spare=spare,
            request=request,
        ),
        event,
    )


def _others(event: Event, sizes: Sizes) -> Iterator[Evidence]:
    """What other processes hold by the error line itself."""
    if sizes.get("others_zero"):
        yield fact(
            FACT.cuda.others_unknown,
            True,
            say("the driver shows other processes on the GPU without showing their use"),
            event,
        )
    elif "others_count" in sizes:
        others = sizes["others_bytes"]
        yield fact(
            FACT.cuda.others_bytes,
            others,
            say("other processes on the GPU hold {others:bytes}", others=float(others or 0)),
            event,
        )


def _site(case: Case, event: Event) -> tuple[str, str] | None:
    """The kind of code nearest to the error: the innermost frame that matches one of the kinds."""
    near = sorted(
        (
            e
            for e in case.around(event, 70)
            if e.kind
            in (
                EVENT.python.frame,
                EVENT.python.logits_code,
                EVENT.phase.weight_sync,
                EVENT.ray.task_error,
                EVENT.ray.unhandled_task_error,
                EVENT.vllm.wake_oom,
                EVENT.torch.cuda_oom,
                EVENT.torch.pin_failed,
            )
        ),
        key=lambda e: abs((e.origin.line or 0) - (event.origin.line or 0)),
    )
    texts = [(" ".join((e.text, *e.after)) if e.kind == EVENT.python.frame else e.text) for e in near]
    for kind, regex in _SITES:
        limit = len(texts) if kind in ("wake", "weight_sync", "logits") else 3 if kind == "pin" else 12
        for text in texts[:limit]:
            if kind in ("logits",) and "CUDA out of memory" in text:
                continue
            if match := regex.search(text):
                return kind, match[0].strip('" ')
    return None


def _logits(case: Case, event: Event) -> Iterator[Evidence]:
    """Whether the request is sequences x tokens x vocabulary x 2 or 4 bytes for the user's lengths."""
    request = whole(event, FIELD.request_bytes)
    prompt, response = (_int(case.value(name)) for name in ("max_prompt_length", "max_response_length"))
    vocabulary = find_vocabulary(case)
    if prompt is not None and response is not None:
        yield Evidence(
            name=FACT.config.sequence_length,
            value=prompt + response,
            says=say(
                "prompt and response may be {prompt} + {response} = {together} tokens long",
                prompt=prompt,
                response=response,
                together=prompt + response,
            ),
            origin=setting.origin if (setting := case.setting("max_prompt_length")) else None,
        )
    if request is None or vocabulary is None:
        return
    size, model = vocabulary
    widths = ((4, "fp32"), (2, "bf16"))
    if any("lm_head(" in " ".join(e.after) for e in case.around(event, 12) if e.kind == EVENT.python.frame):
        widths = widths[::-1]  # the head itself: in what it computes in, which mostly is bf16
    for width, dtype in widths:
        tokens = request / (size * width)
        whole_tokens = abs(tokens - round(tokens)) * size * width < 0.006 * request
        longest = (prompt or 0) + (response or 0)
        if whole_tokens and longest and tokens / longest >= 0.3 and tokens / longest <= 512:
            yield fact(
                FACT.cuda.logits_tokens,
                round(tokens),
                say(
                    "{request:bytes} is {tokens} tokens x {size} (the vocabulary of {model}) x {width} bytes "
                    "({dtype}): the logits",
                    request=request,
                    tokens=round(tokens),
                    size=size,
                    model=model,
                    width=width,
                    dtype=dtype,
                ),
                event,
            )
            return


def find_vocabulary(case: Case) -> tuple[int, str] | None:
    """Vocabulary size by the model's name in settings."""
    for setting in case.settings:
        if isinstance(setting.value, str) and (
            "/" in setting.value or "model" in setting.name or setting.name in folders.every(lambda spec: spec.models)
        ):
            shape = find_shape(setting.value)
            if shape is not None and shape.given_parameters is None:
                return shape.vocabulary, shape.name.rsplit("/", 1)[-1]
    return None


def _int(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
