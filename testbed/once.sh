# Sourced by the scripts that make something once and keep it: folders of the cache that are there as a whole or not at
# all, no matter who is killed in between, and however many want the same.
#
# Environment: BRUPOP_TESTBED_CACHE  where to keep it (default: ~/.cache/brupop-testbed)
cache=${BRUPOP_TESTBED_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/brupop-testbed}
script=${0##*/}

fail() { echo "$script: $*" >&2; exit 1; }

# Debian and the official archive put Go in a folder that is not in everybody's PATH.
need_go() {
    command -v go >/dev/null || PATH=$PATH:/usr/local/go/bin
    command -v go >/dev/null || fail "Go 1.26 or later is needed (https://go.dev/dl); 'go' was not found in PATH"
}

# <name>: prints the folder of this name in the cache and ends the script, if it is there. Else nobody else makes it now:
# fill $building/done, and call `keep`. Commands that may outlive the script must not inherit the lock (9>&-).
once() {
    folder=$cache/$1
    there
    mkdir -p "$cache"
    exec 9>"$folder.lock"
    flock -n 9 || { echo "$script: waiting for another build" >&2; flock 9; }
    there
    building=$(mktemp -d "$cache/building.XXXXXX")
    trap 'rm -rf "$building"' EXIT
    mkdir "$building/done"
}

there() {
    [[ ! -d $folder ]] || { echo "$folder"; exit; }
}

keep() {
    mv -T "$building/done" "$folder"
    echo "$folder"
}
