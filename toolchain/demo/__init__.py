"""Shows a day of five residents in a few minutes, on a temporary cluster (`make demo`)."""
