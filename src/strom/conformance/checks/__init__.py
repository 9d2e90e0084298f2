"""The checks: functions that look at a session and say what they found. `table` names them and their rules."""
