# The node image with one vLLM built in, for nodes that reach no package index.
#
# When: nodes have no internet, or building an environment on every new node takes too long. The
# matrix then says `python: /opt/vllm-0.32.0/bin/python` instead of `install:`. Several versions side
# by side: build this on top of itself with another VLLM_VERSION.
# Not run here: no container runtime was at hand.
#
#   docker build -f cluster/images/vllm.Dockerfile --build-arg VLLM_VERSION=0.32.0 \
#       -t registry.example.com/matrixrun-vllm:0.32.0 .
ARG BASE=registry.example.com/matrixrun-node:latest
FROM ${BASE}
ARG VLLM_VERSION=0.32.0
RUN python3 -m venv /opt/vllm-${VLLM_VERSION} \
    && /opt/vllm-${VLLM_VERSION}/bin/pip install --no-cache-dir vllm==${VLLM_VERSION}
