"""What the doctor can name: events with their fields, facts, settings, the closed lists of a run."""

from rlhfdoctor.vocabulary import events as EVENT
from rlhfdoctor.vocabulary import facts as FACT
from rlhfdoctor.vocabulary import recorder_events as RECORD
from rlhfdoctor.vocabulary.fields import FIELD
from rlhfdoctor.vocabulary.record_fields import RECORD_FIELD
from rlhfdoctor.vocabulary.traits import TRAIT

__all__ = ["EVENT", "FACT", "FIELD", "RECORD", "RECORD_FIELD", "TRAIT"]
