"""Messages about data sets: their preparation (reading, tokenising, filtering), samples that are printed.

`examples/s` is the unit of the progress bars of `datasets` (arrow_dataset.py, builder.py).
"""

from __future__ import annotations

from rlhfdoctor.logs.pattern import Pattern, line
from rlhfdoctor.logs.prefix import PREFIXES
from rlhfdoctor.logs.samples import FORMS
from rlhfdoctor.vocabulary import EVENT

PATTERNS: tuple[Pattern, ...] = (
    line(
        EVENT.data.prepare,
        r"(?:^|[\s)])(?P<name>[A-Z][\w ()=>-]{1,80}): [^\[\n]{0,80}\[[^\]\n]{0,60} examples/s\]",
        "(TaskRunner pid=285358) Map (num_proc=16):  45%|####5     | 450000/1000000 [02:10<02:38, 3461.50 examples/s]",
    ),
    *(
        line(
            EVENT.data.sample,
            form.begin.replace("^", f"^{PREFIXES}"),
            form.sample,
            follow=1000,
            when=form.when,
            look_for=form.begin.replace("^", ""),
        )
        for form in FORMS
    ),
)
