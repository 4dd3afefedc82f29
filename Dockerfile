# parl with training, Atari, plots and videos, in a small image: `docker build -t parl . && docker run --rm parl doctor`.
# The stage `tools` is the development container: Rust, Python and what `make ci` needs.
FROM rust:1.95-slim-trixie AS tools
RUN apt-get update \
 && apt-get install --yes --no-install-recommends g++ git make python3 python3-dev python3-venv valgrind \
 && rm -rf /var/lib/apt/lists/* \
 && rustup component add clippy rustfmt
ENV PYTHON=python3

FROM tools AS wheel
WORKDIR /parl
COPY . .
RUN python3 -m venv /tools \
 && /tools/bin/pip install --quiet "maturin>=1.12,<2" \
 && /tools/bin/maturin build --release --locked --out /dist

FROM python:3.13-slim-trixie
RUN useradd --create-home parl
COPY --from=wheel /dist/*.whl /tmp/
RUN pip install --no-cache-dir "$(ls /tmp/*.whl)[train,atari,plot,video]" \
 && rm /tmp/*.whl
USER parl
WORKDIR /home/parl
# Processes share memory in /dev/shm: give `docker run` an --shm-size above that of the replay.
ENTRYPOINT ["parl"]
CMD ["--help"]
