"""The policy pack: pure rules over the resource graph of a Pulumi program, whichever made it."""
