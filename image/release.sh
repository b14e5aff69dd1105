# What this release is called. The scripts beside this file source it, and it sets, unless they are given:
#   VERSION            as in Cargo.toml, without a leading `v` (also if it is given with one)
#   REVISION           the commit
#   SOURCE_DATE_EPOCH  when it was committed: the date of everything that is made of it
#   IMAGE              the image's name
version() { sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml; }
: "${VERSION:=$(version)}" "${REVISION:=$(git rev-parse HEAD)}" "${SOURCE_DATE_EPOCH:=$(git log -1 --format=%ct)}"
: "${IMAGE:=$(sed -n 's/^ *newName: //p' manifests/kustomization.yaml):$(sed -n 's/^ *newTag: //p' manifests/kustomization.yaml)}"
VERSION=${VERSION#v}
export VERSION REVISION SOURCE_DATE_EPOCH IMAGE

# The architecture of the programs in a folder that image/programs filled, as images call it.
architecture() { # <folder>
    local target
    target=$(jq -r '.metadata.properties[] | select(.name == "target").value' "$1/sbom.cdx.json")
    case $target in
        x86_64-*) echo amd64 ;;
        aarch64-*) echo arm64 ;;
        *) echo "$1: programs for ${target:-no known target}" >&2; return 1 ;;
    esac
}
