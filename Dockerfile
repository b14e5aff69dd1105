# One image with the three programs, static, from scratch: no shell, no libc, no root.
#   docker build -t <registry>/brupop:<version> .
# Natively for each architecture (buildx, amd64 and arm64). The manifests name the program by `command`.
ARG RUST_VERSION=1.95

FROM docker.io/library/rust:${RUST_VERSION}-slim-bookworm AS build
WORKDIR /src
COPY . .
ENV RUSTFLAGS="-C target-feature=+crt-static"
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/target \
    target=$(rustc -vV | sed -n 's/^host: //p') \
    && cargo build --release --locked --target "$target" --target-dir /target \
       -p brupop-agent -p brupop-reconciler -p brupop-webhook \
    && mkdir /out \
    && cp "/target/$target/release/brupop-agent" "/target/$target/release/brupop-reconciler" \
          "/target/$target/release/brupop-webhook" /out/

FROM scratch
LABEL org.opencontainers.image.title="bottlerocket-update-operator" \
      org.opencontainers.image.description="Keeps the Bottlerocket hosts of a Kubernetes cluster up to date" \
      org.opencontainers.image.licenses="Apache-2.0 OR MIT"
COPY --from=build /out/ /
USER 65532:65532
