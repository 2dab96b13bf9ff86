"""The policy pack. Its rules are pure functions of a program's resource graph. They do not depend on which program made
the graph."""
