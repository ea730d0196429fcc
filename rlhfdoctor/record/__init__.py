"""`doctor watch`: the recorder, what it follows, what it forecasts, and the view of it."""
