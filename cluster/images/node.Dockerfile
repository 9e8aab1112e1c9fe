# The image of every Ray node, head and workers: matrixrun with Ray, and no engine.
#
# When: engines are installed from the matrix file (`install: [...]`): each node builds their
# environments once, in MATRIXRUN_CACHE. The matrix chooses versions, the image need not change.
# Not run here: no container runtime was at hand.
#
#   docker build -f cluster/images/node.Dockerfile -t registry.example.com/matrixrun-node:latest .
FROM nvidia/cuda:13.0.1-devel-ubuntu24.04
# A compiler and Python's headers: engines compile kernels at their first start.
RUN apt-get update \
    && apt-get install -y --no-install-recommends \
        build-essential git python3 python3-dev python3-venv wget \
    && rm -rf /var/lib/apt/lists/*
RUN python3 -m venv /opt/matrixrun
ENV PATH=/opt/matrixrun/bin:$PATH
COPY . /src
RUN pip install --no-cache-dir -c /src/constraints.txt /src && rm -rf /src
# matrixrun's processes write no byte code into the image; engines have environments of their own.
WORKDIR /work
