"""The policy pack. Its rules are pure functions of a program's resource graph. They judge the graph of any Pulumi
program."""
