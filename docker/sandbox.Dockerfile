# The image of the judge's Docker sandbox with compilers of its own: nothing of the machine's system
# is mounted into a container then, only the CUDA toolkit, the job's files and three programs of ours.
#
#   docker build -t cuda-rl-sandbox -f docker/sandbox.Dockerfile docker
#   export CUDA_RL_DOCKER_IMAGE=cuda-rl-sandbox
#
# BASE: a Debian or Ubuntu whose C library is no older than that of the machine that judges, since
# our programs are compiled there. One that brings g++ and util-linux needs no network:
#
#   docker build --network none --build-arg BASE=IMAGE -t cuda-rl-sandbox \
#     -f docker/sandbox.Dockerfile docker
ARG BASE=debian:12-slim
FROM ${BASE}
RUN if ! { command -v g++ && command -v prlimit; } > /dev/null; then \
      apt-get update \
      && apt-get install --yes --no-install-recommends g++ libc6-dev util-linux \
      && rm -rf /var/lib/apt/lists/* /usr/share/doc /usr/share/man; \
    fi
USER 65534:65534
