# The wheel in a container that runs as an ordinary user.
#
#   scripts/package wheel image
#   docker run --rm -v "$PWD":/work --user "$(id -u):$(id -g)" finetune:torch2.13 train run.yaml
#
# The build context is the folder of the wheels (dist/). With --gpus all it uses NVIDIA GPUs where the
# installed torch is a CUDA build; PIP_INDEX_URL names the index of another build.
FROM debian:12-slim
ARG TORCH_VERSION=2.13
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
RUN apt-get update \
 && apt-get install -y --no-install-recommends python3 python3-venv ca-certificates rclone \
 && rm -rf /var/lib/apt/lists/*
RUN python3 -m venv /opt/finetune \
 && useradd --create-home --uid 1000 finetune \
 && mkdir /work && chown finetune:finetune /work
COPY finetune_cpp-*+torch${TORCH_VERSION}-*.whl /tmp/wheels/
# The file, not a name: the package index has another project called finetune.
RUN /opt/finetune/bin/pip install --no-cache-dir /tmp/wheels/finetune_cpp-*.whl \
 && rm -rf /tmp/wheels
ENV PATH=/opt/finetune/bin:$PATH
USER finetune
WORKDIR /work
# The binary is process 1: `docker stop` sends SIGTERM, which saves and exits with 75.
ENTRYPOINT ["finetune"]
CMD ["--help"]
