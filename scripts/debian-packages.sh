# Functions of the scripts that install programs from packages of Debian. To be sourced; the script that
# does it defines `say` and `die`.

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

# keyring SUITE WORK: the keyring that signs a suite, that of the system if it contains the keys, otherwise that of the
# newest debian-archive-keyring in the apt sources of the system, which are already trusted.
keyring() {
    local suite=$1 work=$2 name root
    for root in / "$work/keyring/"; do
        for name in "debian-archive-$suite-automatic.gpg" "debian-archive-$suite-automatic.pgp"; do
            if [[ -f ${root}usr/share/keyrings/$name ]]; then
                printf '%s\n' "${root}usr/share/keyrings/${name/-$suite-automatic/-keyring}"
                return
            fi
        done
        if [[ $root == / ]]; then
            say "this system's keyring has no keys for $suite; fetching debian-archive-keyring"
            mkdir -p "$work"/system/{lists,archives}/partial
            if ((EUID == 0)) && id _apt &>/dev/null; then chown _apt "$work/system"; fi
            local options=(-qq -o "Dir::State::lists=$work/system/lists" -o "Dir::Cache=$work/system")
            apt-get "${options[@]}" update >&2 || say "warning: some of this system's apt sources do not respond"
            (cd "$work/system" && apt-get "${options[@]}" download debian-archive-keyring >&2) ||
                die "cannot fetch debian-archive-keyring from this system's apt sources"
            dpkg-deb -x "$work"/system/debian-archive-keyring_*.deb "$work/keyring"
        fi
    done
    die "debian-archive-keyring has no keys for $suite; is this system older than Debian 12?"
}

# unpack_debian_packages SUITE WORK PACKAGE=VERSION...: unpacks packages into WORK/root. A version is without
# Debian's revision. Packages come from the mirrors of this machine's apt, and are checked against Debian's
# archive keys; apt uses lists and a cache in WORK, needs no root and installs nothing.
unpack_debian_packages() {
    local suite=$1 work=$2
    shift 2
    local tool
    for tool in apt-get apt-cache apt-config dpkg-deb; do
        if ! command -v "$tool" >/dev/null; then
            say "$tool not found: this script unpacks Debian packages"
            return 1
        fi
    done
    local codename
    # shellcheck source=/dev/null
    codename=$(. /etc/os-release && printf '%s' "${VERSION_CODENAME:-}")
    chmod 755 "$work"
    mkdir -p "$work"/apt/{lists,archives}/partial "$work"/{packages,parts,root}
    # When root starts apt, it downloads as user _apt.
    if ((EUID == 0)) && id _apt &>/dev/null; then chown _apt "$work/packages"; fi

    local keys uri candidates
    keys=$(keyring "$suite" "$work")
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
        printf 'deb [signed-by=%s] %s %s main\n' "$keys" "$uri" "$suite" >"$work/sources.list"
        say "reading $suite at $uri"
        if apt-get "${options[@]}" update >&2; then
            found=$uri
            break
        fi
    done
    [[ -n $found ]] || die "no mirror of this system serves $suite: ${candidates[*]}"

    local wanted package version
    for wanted; do
        package=${wanted%%=*}
        version=$(apt-cache "${options[@]}" madison "$package" |
            awk -F ' *[|] *' -v wanted="${wanted#*=}" 'index($2, wanted "-") == 1 { print $2; exit }')
        [[ -n $version ]] || die "$found has no $wanted in $suite"
        say "fetching $package $version"
        (cd "$work/packages" && apt-get "${options[@]}" download "$package=$version" >&2) ||
            die "cannot fetch $package $version"
        dpkg-deb -x "$work/packages/${package}_"*.deb "$work/root"
    done
}
