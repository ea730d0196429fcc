"""The doctor's own exam: labelled incidents, dropped sources, changed names; and the fit of its confidences."""
