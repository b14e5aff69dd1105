# One image with the three programs, from scratch: no shell, no libc, no root. The manifests name the program by `command`.
#   make container IMAGE=<registry>/brupop:<version>
# Nothing in it is tied to an architecture. This file has been built on amd64 only; `make image` makes an image of programs that
# were cross-compiled for arm64.
# Static with glibc, not musl: a tenth larger, but with musl's allocator the webhook takes several times as long for a verdict.
# Names are found all the same. No bundle of authorities: the API server is known by the pod's own, and nothing else is asked.
ARG RUST_VERSION=1.99.1

# `--build-context build=<folder>` takes programs that were built elsewhere in place of this stage.
FROM docker.io/library/rust:${RUST_VERSION}-slim-bookworm AS build
WORKDIR /src
COPY . .
ARG TARGETARCH
RUN --mount=type=cache,target=/usr/local/cargo/registry,sharing=locked \
    --mount=type=cache,id=brupop-target-${TARGETARCH},target=/target,sharing=locked \
    CARGO_TARGET_DIR=/target image/programs /out && cp LICENSE-APACHE LICENSE-MIT /out/

FROM scratch
ARG VERSION=unknown
ARG REVISION=unknown
LABEL org.opencontainers.image.title="bottlerocket-update-operator" \
      org.opencontainers.image.description="Keeps the Bottlerocket hosts of a Kubernetes cluster up to date" \
      org.opencontainers.image.source="https://github.com/bottlerocket-update-operator/brupop" \
      org.opencontainers.image.licenses="Apache-2.0 OR MIT" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=build /out/ /
USER 65532:65532
