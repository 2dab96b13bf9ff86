"""Plays a day of five residents within minutes, on a temporary cluster (`make demo`)."""
