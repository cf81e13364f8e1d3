# SPDX-License-Identifier: MIT
# shellcheck shell=sh disable=SC2034
# Shared by these scripts, which source it. POSIX sh.

say() {
    printf '%s\n' "$*" >&2
}

die() {
    say "$(basename "$0"): $*"
    exit 1
}

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

# Debian's Python, for which apt installs modules; a python3 earlier in PATH may lack them.
python=/usr/bin/python3

# Print the argument quoted as a word for a shell.
quoted() {
    case $1 in
        '' | *[!A-Za-z0-9_./:=@%+,-]*) printf "'%s'" "$(printf %s "$1" | sed "s/'/'\\\\''/g")" ;;
        *) printf %s "$1" ;;
    esac
}

# Print the path of a file or directory from the current directory: relative if it is below, else
# absolute; never like an option.
from_here() {
    here=$(pwd -P)
    case $1 in
        "$here"/*) set -- "${1#"$here"/}" ;;
    esac
    case $1 in
        -*) printf %s "./$1" ;;
        *) printf %s "$1" ;;
    esac
}

installed() {
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

# Quietly install those of the named Debian packages that are missing; do nothing on other systems.
need() {
    command -v dpkg-query >/dev/null || return 0
    missing=
    for package; do
        installed "$package" || missing="$missing $package"
    done
    [ -n "$missing" ] || return 0
    [ "$(id -u)" = 0 ] || command -v sudo >/dev/null || die "please install:$missing"
    say "installing:$missing"
    # The package lists may be missing or old, so they are fetched only if necessary.
    # shellcheck disable=SC2086
    apt_install $missing 2>/dev/null ||
        { as_root apt-get -qq update >&2 && apt_install $missing; } || die "cannot install:$missing"
}

apt_install() {
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends \
        -o Dpkg::Use-Pty=0 install "$@" </dev/null >&2
}

# fusermount3 reads /etc/mtab, which a system made by debootstrap has only with systemd.
need_mtab() {
    [ -e /etc/mtab ] || as_root ln -s ../proc/self/mounts /etc/mtab
}

# build DIR MESON_OPTION... : configure once, then compile; prints output only if it fails.
build() {
    dir=$1
    shift
    [ -f "$dir/build.ninja" ] || quietly meson setup "$dir" "$@"
    quietly ninja -C "$dir"
}

quietly() {
    output=$("$@" 2>&1) || {
        say "$output"
        die "failed: $*"
    }
}

# Print the program that build() has built in DIR.
program() {
    for path in "$1/ggufs" "$1/src/ggufs"; do
        [ ! -x "$path" ] || { printf '%s\n' "$path"; return; }
    done
    die "no program in $1"
}
