# The agents' image: the official Python image, the agents' code, and the bytecode of both (docs/adr/0043).
# `make release-dry-run` puts this file and the code into gpu-tenancy-agents-VERSION.tar.gz, which is the build's context.
ARG BASE=docker.io/library/python:3.13.9-slim-bookworm@sha256:b685a4fa58bb19d1814d78a1ec0f0208f351452724f78b20212c984d6e124a34

FROM --platform=$BUILDPLATFORM ${BASE} AS compiled
COPY code /made/opt/gpu-tenancy
# Bytecode is the same on every platform. It is not compared with its source, whose time can differ in the image.
RUN set -eu; \
    compile() { python -m compileall -q --invalidation-mode unchecked-hash "$@"; }; \
    for code in /made/opt/gpu-tenancy/*.pyz; do \
        mkdir /code; cd /code; \
        python -m zipfile -e "$code" .; \
        compile -b .; \
        rm "$code"; python -m zipfile -c "$code" *; \
        cd /; rm -r /code; \
    done; \
    library=$(python -c 'import sysconfig; print(sysconfig.get_path("stdlib"))'); \
    compile -x '/(site-packages|test|tests|idlelib|ensurepip|turtledemo|lib2to3|tkinter)/' "$library"; \
    find "$library" -name __pycache__ | tar --create --files-from=- | tar --extract --directory=/made

FROM ${BASE}
COPY --from=compiled /made /
