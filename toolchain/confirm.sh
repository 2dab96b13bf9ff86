#!/bin/sh
# Asks for a typed yes before a change to the cluster of the current kubeconfig: confirm.sh <what is to be done>
# YES=1 in the environment answers for pipelines, which have their own approval.
set -eu
cluster=$(.venv/bin/python -m stacks cluster)
if [ "${YES:-}" = 1 ]; then
    echo "$1: $cluster (YES=1)"
    exit 0
fi
printf '\n%s: %s\nType yes to go on: ' "$1" "$cluster"
answer=
read -r answer || echo
if [ "$answer" != yes ]; then
    echo "Nothing was changed." >&2
    exit 1
fi
