"""`doctor watch`: the recorder of a run, with its forecast, its alarms, its live view."""
