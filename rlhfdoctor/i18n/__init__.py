"""The languages of reports."""
