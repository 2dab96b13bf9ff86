"""The policy pack. The rules of the pack are pure functions of a program's resource graph. The pack can judge the graph
of any Pulumi program."""
