# What the scripts tests/*/install have in common; each reads this file first, by
#   . "$(dirname "$0")/../part.sh"
#
# Such a script prints the path of what some tests need beside Debian's packages. It makes that once, and keeps it in the user's
# cache. All else that it says goes to standard error. On a machine that cannot have it, the line that it prints is the reason,
# and the exit code 3. With PARTS=kept it makes nothing: where it would have to, it ends with 4.
set -euo pipefail
# Only the path or the reason goes to standard output, whatever the commands below print.
exec 3>&1 >&2
cd "$(dirname "$0")"
cache=${XDG_CACHE_HOME:-$HOME/.cache}/machine-config-server
export GOTOOLCHAIN=local

say() {
    echo "tests/${PWD##*/}/install: $*"
}

give_up() { # REASON
    say "$1"
    echo "$1" >&3
    exit 3
}

as_root() {
    if [[ $EUID -eq 0 ]]; then "$@"; else sudo "$@"; fi
}

# Prints what the variable names, where it is set, and ends. Each PROGRAM must be there: in that folder, or the path itself
# without one.
given() { # VARIABLE [PROGRAM...]
    local path=${!1:-} program
    [[ -n $path ]] || return 0
    for program in "${@:2}"; do
        [[ -e $path/$program ]] || { say "$1=$path has no $program"; exit 1; }
    done
    [[ -e $path ]] || { say "$1=$path does not exist"; exit 1; }
    echo "$path" >&3
    exit
}

# The version of a module in go.mod.
version_of() { # MODULE [FILE]
    sed -En "s|^(.*[[:space:]])?$1 (v[^ ]+).*|\2|p" "${2:-go.mod}" | head -n 1
}

# Another text, another program.
text_of() { # FILE...
    cat "$@" | sha256sum | cut -c-8
}

# Gives up without a Go that is new enough for go.mod.
needs_go() { # WHAT [FILE]
    local needed found
    needed=go$(sed -n 's/^go //p' "${2:-go.mod}")
    command -v go >/dev/null || give_up "$1 is built with $needed or newer, and this machine has no Go"
    found=$(cd / && go env GOVERSION)
    printf '%s\n' "$needed" "$found" | sort --version-sort --check=quiet ||
        give_up "$1 is built with $needed or newer, and this machine has $found"
}

# Builds programs of Kubernetes, in the version that tests/kubernetes/go.mod has.
build_kubernetes() { # FOLDER PROGRAM...
    local folder=$1 version major minor stamp=k8s.io/component-base/version.git
    shift
    version=$(version_of k8s.io/kubernetes ../kubernetes/go.mod)
    needs_go "Kubernetes $version" ../kubernetes/go.mod
    # The stamp is the version that the programs report, which is v0.0.0 without it.
    IFS=. read -r major minor _ <<<"${version#v}"
    (
        cd ../kubernetes
        CGO_ENABLED=0 go build -mod=readonly -trimpath -o "$folder/" \
            -ldflags "-s -w -X ${stamp}Version=$version -X ${stamp}Major=$major -X ${stamp}Minor=$minor" \
            "${@/#/k8s.io/kubernetes/cmd/}"
    )
}

# Makes the image of what holds a pod together, an archive in the form of OCI.
make_pause() { # FILE.tar
    local work
    work=$(mktemp -d)
    mkdir "$work/root"
    gcc -O2 -static -s -Wall -Wextra -Werror -o "$work/root/pause" ../node/pause.c
    SOURCE_DATE_EPOCH=0 ../../deploy/oci-layout "$work/root" "$work/pause" registry.k8s.io/pause:3.10 \
        '{"User":"65535:65535","Entrypoint":["/pause"]}'
    mv "$work/pause.tar" "$1"
    rm -r "$work"
}

# Runs an apt-get while no other script does: two that fetch the lists of packages refuse each other.
alone() { # COMMAND...
    local lock status=0
    mkdir -p "$cache"
    exec {lock}>"$cache/apt-get.lock"
    flock "$lock"
    "$@" {lock}>&- || status=$?
    exec {lock}>&-
    return "$status"
}

# Unpacks packages of Debian into a folder. They are not installed, which would start services.
unpack() { # FOLDER PACKAGE...
    local folder=$1 package
    shift
    say "taking from Debian's packages: $*"
    mkdir -p "$folder/packages" && alone as_root apt-get -qq update && (
        cd "$folder/packages" && apt-get -qq -o APT::Sandbox::User=root download "$@" &&
            for package in *.deb; do
                dpkg-deb --extract "$package" .. || exit
            done
    ) && rm -r "$folder/packages"
}

# Prints FILE of the folder NAME in the cache, or the folder itself. Where it is missing, `make FOLDER` makes it first, in a
# folder beside it; other runs wait.
keep() { # NAME [FILE]
    local kept=$cache/$1 answer=$cache/$1${2:+/$2} made lock
    if [[ ! -e $answer ]]; then
        [[ ${PARTS:-} != kept ]] || exit 4
        mkdir -p "$cache"
        exec {lock}>"$kept.lock"
        flock "$lock"
    fi
    if [[ ! -e $answer ]]; then # not made by a run that this one has waited for
        made=$(mktemp -d "$kept.XXXXXX")
        # shellcheck disable=SC2064 # this one
        trap "rm -rf '$made'" EXIT
        say "making $1, once; kept in $kept"
        make "$made"
        chmod 755 "$made"
        mv --no-target-directory "$made" "$kept"
    fi
    echo "$answer" >&3
}
