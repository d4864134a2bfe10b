# SPDX-License-Identifier: Apache-2.0
# Shared by the scripts of this directory: the project's path, messages, versions of programs that are new enough.
# shellcheck shell=bash

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

# On Debian a plain user's PATH does not have the sbin directories; the programs in them run for any user.
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
export PATH

# Not empty while tools/packages is at work, or after it was killed. Gone after a boot.
# shellcheck disable=SC2034 # used by the scripts that read this one
enabled_before=/run/atoll-packages.enabled-before

say() { printf 'setup: %s\n' "$*"; }

complain() {
    printf 'setup: %s\n' "$*" >&2
    return 1
}

fail() {
    complain "$@" || exit 1
}

# Messages of apt, pip, uv and cargo, among many others, when a server cannot be reached.
unreachable='Temporary failure [a-z ]*resol[a-z]+|[Cc]ould not resolve host|Name or service not known|dns error'
unreachable+='|[Cc]onnection refused|[Nn]etwork is unreachable|[Tt]imed out|Could not connect to server'

# explain WHAT LOG: if that is why a command failed whose messages LOG holds, says so in one line and ends this script.
explain() {
    local why
    why=$(grep -oEm1 "$unreachable" "$2") || return 0
    rm -f "$2"
    fail "$1 cannot be fetched (${why%%$'\n'*}): the first set-up takes a network, a proxy or a mirror; run it again with one, and it goes on here"
}

# fetching WHAT COMMAND...: says so and runs a command that may have to fetch WHAT. Its messages are shown when it is done.
fetching() {
    local what=$1 log code=0
    shift
    say "$what"
    log=$(mktemp)
    "$@" 2>"$log" || code=$?
    [ $code = 0 ] || explain "$what" "$log"
    cat "$log" >&2
    rm -f "$log"
    return $code
}

# with_progress TEXT COMMAND...: runs a command, and says every ten seconds what the command TEXT prints, and the seconds.
# The reader of a pipe does so, because it ends with this shell, however that ends.
progress_every=10
with_progress() {
    local text=$1 begin=$SECONDS progress reader
    shift
    exec 8> >(
        exec 9<&- # the lock of set-up
        while read -r -t "$progress_every" || [ $? -gt 128 ]; do
            progress=$("$text")
            [ -z "$progress" ] || say "$progress, $((SECONDS - begin)) s"
        done
    )
    reader=$!
    "$@" 8>&-
    exec 8>&-
    wait "$reader"
}

# version_at_least HAVE WANT: compares dotted numbers. No script here has a reader in a pipe that leaves early (head, grep -q):
# the writer would die of SIGPIPE, which pipefail takes for the command's failure.
version_at_least() { [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | sed -n 1p)" = "$2" ]; }

oldest_rust() { sed -n 's/^rust-version = "\(.*\)"$/\1/p' "$root/Cargo.toml"; }

# The first cargo that is new enough: the user's own, or one of a distribution's versioned packages. Empty if none.
find_cargo() {
    local cargo version
    for cargo in "$(command -v cargo || true)" "$HOME/.cargo/bin/cargo" /usr/bin/cargo /usr/lib/rust-*/bin/cargo; do
        [ -x "$cargo" ] || continue
        version=$("$cargo" --version 2>/dev/null | cut -d' ' -f2) || continue
        if version_at_least "$version" "$(oldest_rust)"; then
            printf '%s\n' "$cargo"
            return
        fi
    done
}
