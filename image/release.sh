# What this release is called, for the scripts beside this file, which source it: VERSION, REVISION (the commit),
# SOURCE_DATE_EPOCH (when it was committed, which is the date of all that is made of it) and IMAGE. Each can be given.
version() { sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml; }
: "${VERSION:=$(version)}" "${REVISION:=$(git rev-parse HEAD)}" "${SOURCE_DATE_EPOCH:=$(git log -1 --format=%ct)}"
: "${IMAGE:=$(sed -n 's/^ *image: //p' manifests/agent-daemon-set.yaml)}"
export VERSION REVISION SOURCE_DATE_EPOCH IMAGE
