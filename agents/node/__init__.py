"""The node an agent runs on: control groups, and the pods that the kubelet runs there."""
