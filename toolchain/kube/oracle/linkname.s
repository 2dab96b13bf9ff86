// Empty: a folder with assembly may declare functions without a body, as go:linkname needs.
