#!/bin/sh
# Makes a stack in the backend, where it is not there yet: ensure-stack.sh <stack>
# A new stack gets an encryptionsalt, for which Pulumi writes the stack file anew and drops its blank lines. So Pulumi
# gets a copy of the project, and the salt is appended to the real file.
set -eu
file=Pulumi.$1.yaml
[ -f "$file" ] || {
    echo "$file is not there; begin with make new-stack STACK=$1" >&2
    exit 1
}
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
cp Pulumi.yaml "$file" "$copy"
said=$(.toolchain/bin/pulumi -C "$copy" stack select --create --stack "$1" 2>&1) || {
    echo "$said" >&2
    exit 1
}
if ! grep -q '^encryptionsalt:' "$file"; then
    salt=$(grep '^encryptionsalt:' "$copy/$file") || exit 0 # some secrets providers have none
    [ -z "$(tail -c 1 "$file")" ] || echo >>"$file"
    echo "$salt" >>"$file"
fi
