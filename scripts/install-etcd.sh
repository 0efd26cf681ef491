#!/usr/bin/env bash
# Installs the real etcd and etcdctl that the tests compare against.
#
#     scripts/install-etcd.sh [DIRECTORY]        default: tests/.tools
#
# The binaries come from Debian 13's packages etcd-server and etcd-client and end up in DIRECTORY/bin.
# Nothing else is changed: apt uses separate lists and a separate cache in a temporary directory,
# needs no root, and installs no package. Packages are fetched from the mirror that this machine's apt
# already uses and checked against Debian's archive keys. Running it again is cheap.
set -euo pipefail

readonly ETCD_VERSION=3.5.16
readonly SUITE=trixie

say() { printf 'install-etcd: %s\n' "$*" >&2; }
die() { say "error: $*"; exit 1; }

# Prints the version of an etcd or etcdctl binary, or nothing if it does not run.
version_of() {
    case $1 in
        */etcdctl) "$1" version 2>/dev/null | sed -n 's/^etcdctl version: //p' ;;
        *) "$1" --version 2>/dev/null | sed -n 's/^etcd Version: //p' ;;
    esac
}

installed() {
    [[ $(version_of "$1/etcd" || true) == "$ETCD_VERSION" ]] &&
        [[ $(version_of "$1/etcdctl" || true) == "$ETCD_VERSION" ]]
}

report() {
    say "etcd $(version_of "$1/etcd") at $1/etcd"
    say "etcdctl $(version_of "$1/etcdctl") at $1/etcdctl"
}

# The URIs of this machine's Debian archives: those of its apt sources that offer component `main` of
# the release it runs. Some third parties use the same names for their suites; the signature check
# rejects them later. Both formats of sources are supported.
mirrors() {
    local codename=$1 etc sourcelist sourceparts
    eval "$(apt-config shell etc Dir::Etc/d sourcelist Dir::Etc::sourcelist/f sourceparts Dir::Etc::sourceparts/d)"
    local lists=() deb822=() file
    for file in "$sourcelist" "$sourceparts"/*.list; do
        [[ -f $file ]] && lists+=("$file")
    done
    for file in "$sourceparts"/*.sources; do
        [[ -f $file ]] && deb822+=("$file")
    done
    {
        # deb [options] uri suite component...
        ((${#lists[@]} == 0)) || sed -E 's/#.*//; s/\[[^]]*\]//' "${lists[@]}" | awk -v codename="$codename" '
            $1 == "deb" && $3 ~ "^(" codename "|stable|oldstable)/?$" {
                for (i = 4; i <= NF; i++) if ($i == "main") print $2
            }'
        # Stanzas of `Field: values`, separated by empty lines; values may continue in indented lines.
        ((${#deb822[@]} == 0)) || awk -v codename="$codename" '
            function has(text, pattern,    n, i, words) {
                n = split(text, words, /[ \t]+/)
                for (i = 1; i <= n; i++) if (words[i] ~ pattern) return 1
                return 0
            }
            function flush(    n, i, uris) {
                if (has(value["types"], "^deb$") && has(value["components"], "^main$") &&
                    has(value["suites"], "^(" codename "|stable|oldstable)$") &&
                    tolower(value["enabled"]) !~ /no|false/) {
                    n = split(value["uris"], uris, /[ \t]+/)
                    for (i = 1; i <= n; i++) if (uris[i] != "") print uris[i]
                }
                split("", value)
                field = ""
            }
            FNR == 1 { flush() }
            /^#/ { next }
            /^[ \t]*$/ { flush(); next }
            /^[ \t]/ { value[field] = value[field] " " $0; next }
            { field = tolower($0); sub(/:.*/, "", field); sub(/^[^:]*:[ \t]*/, ""); value[field] = $0 }
            END { flush() }' "${deb822[@]}"
    } | grep -v '^cdrom:' | awk '!seen[$0]++'
}

# The keyring that signs $SUITE: that of the system if it contains the keys, otherwise that of the
# newest debian-archive-keyring in the apt sources of the system, which are already trusted.
keyring() {
    local work=$1 name root
    for root in / "$work/keyring/"; do
        for name in "debian-archive-$SUITE-automatic.gpg" "debian-archive-$SUITE-automatic.pgp"; do
            if [[ -f ${root}usr/share/keyrings/$name ]]; then
                printf '%s\n' "${root}usr/share/keyrings/${name/-$SUITE-automatic/-keyring}"
                return
            fi
        done
        if [[ $root == / ]]; then
            say "this system's keyring has no keys for $SUITE; fetching debian-archive-keyring"
            mkdir -p "$work"/system/{lists,archives}/partial
            if ((EUID == 0)) && id _apt &>/dev/null; then chown _apt "$work/system"; fi
            local options=(-qq -o "Dir::State::lists=$work/system/lists" -o "Dir::Cache=$work/system")
            apt-get "${options[@]}" update >&2 || say "warning: some of this system's apt sources do not respond"
            (cd "$work/system" && apt-get "${options[@]}" download debian-archive-keyring >&2) ||
                die "cannot fetch debian-archive-keyring from this system's apt sources"
            dpkg-deb -x "$work"/system/debian-archive-keyring_*.deb "$work/keyring"
        fi
    done
    die "debian-archive-keyring has no keys for $SUITE; is this system older than Debian 12?"
}

main() {
    (($# <= 1)) || die "usage: $0 [DIRECTORY]"
    local here destination
    here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
    destination=${1:-$here/tests/.tools}
    mkdir -p "$destination/bin"
    destination=$(cd "$destination" && pwd)

    if installed "$destination/bin"; then
        report "$destination/bin"
        return
    fi

    local tool
    for tool in apt-get apt-cache apt-config dpkg-deb; do
        command -v "$tool" >/dev/null ||
            die "$tool not found: this script unpacks Debian packages. Elsewhere, put etcd and etcdctl" \
                "$ETCD_VERSION on PATH, or name them in the variables ETCD and ETCDCTL."
    done
    local codename
    # shellcheck source=/dev/null
    codename=$(. /etc/os-release && printf '%s' "${VERSION_CODENAME:-}")

    # Global for the trap, which runs after `main` has returned.
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    chmod 755 "$work"
    mkdir -p "$work"/apt/{lists,archives}/partial "$work"/{packages,parts,root}
    # When root starts apt, it downloads as user _apt.
    if ((EUID == 0)) && id _apt &>/dev/null; then chown _apt "$work/packages"; fi

    local keys uri candidates
    keys=$(keyring "$work")
    mapfile -t candidates < <(mirrors "$codename")
    ((${#candidates[@]})) || die "none of this system's apt sources is a Debian archive"

    local options=(
        -qq
        -o "Dir::Etc::sourcelist=$work/sources.list"
        -o "Dir::Etc::sourceparts=$work/parts"
        -o Dir::Etc::preferences=/dev/null
        -o Dir::Etc::preferencesparts=/dev/null
        -o "Dir::State::lists=$work/apt/lists"
        -o "Dir::Cache=$work/apt"
        -o Acquire::Languages=none
        -o Acquire::Retries=3
        -o APT::Update::Error-Mode=any
    )
    local found=
    for uri in "${candidates[@]}"; do
        printf 'deb [signed-by=%s] %s %s main\n' "$keys" "$uri" "$SUITE" >"$work/sources.list"
        say "reading $SUITE at $uri"
        if apt-get "${options[@]}" update >&2; then
            found=$uri
            break
        fi
    done
    [[ -n $found ]] || die "no mirror of this system serves $SUITE: ${candidates[*]}"

    local package version
    for package in etcd-server etcd-client; do
        version=$(apt-cache "${options[@]}" madison "$package" |
            awk -F ' *[|] *' -v wanted="$ETCD_VERSION" 'index($2, wanted "-") == 1 { print $2; exit }')
        [[ -n $version ]] || die "$found has no $package $ETCD_VERSION in $SUITE"
        say "fetching $package $version"
        (cd "$work/packages" && apt-get "${options[@]}" download "$package=$version" >&2) ||
            die "cannot fetch $package $version"
        dpkg-deb -x "$work/packages/${package}_"*.deb "$work/root"
    done

    # Renamed into place, so that an interrupted run leaves either the old binary or the new one.
    for tool in etcd etcdctl; do
        install -m 755 "$work/root/usr/bin/$tool" "$destination/bin/.$tool.new"
        mv -f "$destination/bin/.$tool.new" "$destination/bin/$tool"
    done
    installed "$destination/bin" || die "the unpacked binaries do not run, or are not $ETCD_VERSION"
    report "$destination/bin"
}

main "$@"
