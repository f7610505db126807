# What a work node has: a few facts, and its Pythons as their files tell. Responsible for looking, never for
# choosing: it must not know what we need. POSIX sh (dash, busybox, bash).
#
# The hub sends this on the stdin of /bin/sh, in braces (so that it is read whole first) and followed by one call:
#     survey SEARCH NAME...    facts, then candidates; SEARCH is "all", or "path" for PATH alone. Starts no Python.
#     try SECONDS PATH...      starts these Pythons side by side and lets each tell about itself
# and preceded by setup_lines: the user's set-up lines, "" if there are none.
# Answers are lines of fields with tabs between. The exit status is 0 if the answer is complete.

# Around what a login shell is asked for, as its start files may print before and after it.
mark='=== jupyter-gpu-kernel probe'
tab=$(printf '\t')

begin() {
    exec </dev/null
    usual_path
    LC_ALL=C
    export LC_ALL
    HOME=${HOME:-$(cd ~ 2>/dev/null && pwd)}
    scratch=
    for place in "${TMPDIR:-/tmp}" /tmp /dev/shm /var/tmp "$HOME"; do
        scratch=$(mktemp -d "$place/jupyter-gpu-kernel-probe.XXXXXX" 2>/dev/null) || continue
        trap 'rm -rf "$scratch" 2>/dev/null || rm -rf "$scratch"' EXIT # what was late may write its .rc meanwhile
        trap 'exit 1' HUP INT PIPE TERM
        echo x 2>/dev/null >"$scratch/x" && [ -s "$scratch/x" ] && return
        rm -rf "$scratch"
    done
    say fact scratch none
    exit 0
}

# usual_path: start files can break PATH; what they left goes first
usual_path() {
    for tool in cat date dd find grep head mktemp readlink rm sed sleep tail tr uname; do
        command -v $tool >/dev/null 2>&1 && continue
        PATH=${PATH:+$PATH:}/usr/local/bin:/usr/bin:/bin
        export PATH
        return
    done
}

# say FIELD...: one line; what is in a field's way becomes a space
say() {
    line=
    for field; do
        case $field in *[[:cntrl:]]*) field=$(printf %s "$field" | tr '[:cntrl:]' ' ') ;; esac
        line=$line$field$tab
    done
    printf '%s\n' "${line%"$tab"}"
}

# --- side by side, under a time limit, however dead a file system is ---

# start OUT PROGRAM WORD...: in the background, into OUT; OUT.rc appears when it has ended. Nothing of it holds
# our own stdout, or the hub would wait for a process that cannot be killed.
start() {
    out=$1
    shift
    if command -v setsid >/dev/null 2>&1; then set -- setsid "$@"; fi
    {
        "$@" >"$out" 2>"$out.err" &
        echo $! >"$out.pid"
        wait $!
        echo $? >"$out.rc"
    } >/dev/null 2>&1 &
}

# await SECONDS OUT...: until all have ended; what is late is killed, and has OUT.late
await() {
    late=$(($(date +%s) + $1))
    shift
    for out; do
        while [ ! -s "$out.rc" ] && [ "$(date +%s)" -lt "$late" ]; do
            sleep 0.05 2>/dev/null || sleep 1
        done
    done
    for out; do
        [ -s "$out.rc" ] || { : >"$out.late" && stop "$(cat "$out.pid" 2>/dev/null)"; }
    done
}

stop() {
    [ -z "$1" ] || kill -9 "-$1" 2>/dev/null || kill -9 "$1" 2>/dev/null
}

# --- facts ---

facts() {
    say fact hostname "$(hostname 2>/dev/null || uname -n)"
    say fact machine "$(uname -m)"
    libc=$(getconf GNU_LIBC_VERSION 2>/dev/null)
    say fact glibc "${libc#glibc }"
    say fact home "$HOME"
    say fact nvidia_smi "$(command -v nvidia-smi || ls /usr/local/nvidia/bin/nvidia-smi 2>/dev/null)"
}

# write_home: 1 KiB. NFS tells of a quota only when it syncs, which a busy disk may take long for.
write_home() {
    written=$HOME/.jupyter-gpu-kernel-probe.$$
    start "$scratch/home" sh -c 'dd if=/dev/zero "of=$1" bs=1024 count=1 conv=fsync; code=$?; rm -f "$1"; exit $code' \
        sh "$written"
}

# home_problem: why nothing can be written there; empty if something can, or if that is not known in time
home_problem() {
    [ -d "$HOME" ] || { echo "there is no such folder" && return; }
    await 10 "$scratch/home"
    if [ -e "$scratch/home.late" ]; then
        rm -f "$written" >/dev/null 2>&1 & # not by start: $scratch may be gone before it begins
        return
    fi
    [ "$(cat "$scratch/home.rc")" != 0 ] || return
    { cat "$scratch/home.err" && echo 'dd: cannot be written'; } | sed -n '/^dd: /s/.*: *//p' | head -n 1
}

# --- Pythons, by their files ---

seen='
'
count=0

# describe SOURCE PATH: a line for a Python whose prefix was not seen yet
describe() {
    case $2 in /*) [ -f "$2" ] && [ -x "$2" ] || return 0 ;; *) return 0 ;; esac
    real=$2
    [ -f "${2%/*}/../pyvenv.cfg" ] || real=$(readlink -f "$2" 2>/dev/null || printf %s "$2")
    prefix=$(cd -P "${real%/*}/.." 2>/dev/null && pwd) || return 0
    case $seen in *"
$prefix
"*) return 0 ;; esac
    seen=$seen$prefix'
'
    [ ! -e "$prefix/.jupyter-gpu-kernel-unfinished" ] || return 0
    count=$((count + 1))
    if [ $count -gt 50 ]; then
        [ $count -gt 51 ] || say unseen "more than 50 Pythons"
        return 0
    fi
    kind_and_version
    sites
    say python "$1" "$2" "$prefix" "$kind" "$version" "$ipykernel" "$pyzmq"
}

# kind_and_version: of $prefix. kind: venv, venv+ (sees its base's packages), conda or other
kind_and_version() {
    kind=other version=
    if [ -f "$prefix/pyvenv.cfg" ]; then
        kind=venv
        version=$(sed -n 's/^version\(_info\)\{0,1\} *= *\([0-9.]*[0-9]\).*/\2/p' "$prefix/pyvenv.cfg" | head -n 1)
        if grep -qi '^include-system-site-packages *= *true' "$prefix/pyvenv.cfg"; then kind=venv+; fi
    elif [ -d "$prefix/conda-meta" ]; then
        for file in "$prefix"/conda-meta/python-[0-9]*.json; do
            [ -e "$file" ] || continue
            kind=conda version=${file##*/python-}
            version=${version%%-*}
        done
    fi
}

# sites: the versions of ipykernel and pyzmq in the folders this Python would look at
sites() {
    ipykernel='' pyzmq=''
    for site in "$prefix"/lib/python3*/site-packages "$prefix"/lib64/python3*/site-packages \
        "$prefix"/lib/python3/dist-packages "$prefix"/local/lib/python3*/dist-packages; do
        look_into "$site"
    done
    case $kind in
    conda) look_into "$HOME/.local/lib/python${version%.*}/site-packages" ;;
    esac
}

look_into() {
    [ -d "$1" ] || return 0
    ipykernel=${ipykernel:-$(version_of ipykernel "$1")}
    pyzmq=${pyzmq:-$(version_of pyzmq "$1")}
}

version_of() {
    for file in "$2/$1"-[0-9]*.dist-info "$2/$1"-[0-9]*.egg-info; do
        [ -e "$file" ] || continue
        file=${file##*/"$1"-}
        file=${file%.*-info}
        printf %s "${file%%-*}"
        return
    done
}

# --- where Pythons are ---

# ask_login_shell NAME...: what a login shell's PATH has, and its conda. Start files may print, prompt or hang.
ask_login_shell() {
    words="echo; echo '$mark begin'"
    case ${SHELL:=/bin/sh} in
    *csh) find=which && login=-c ;;
    *) find='command -v' && login=-lc && words="$words; echo CONDA_EXE=\$CONDA_EXE" ;;
    esac
    for name; do words="$words; $find $name"; done
    start "$scratch/login" "$SHELL" "$login" "$words; echo '$mark end'"
}

# ask_setup NAME...: what a login shell's PATH has after the set-up lines, as a kernel runs them: from a file, since
# everybody can read command lines.
ask_setup() {
    [ -n "${setup_lines:-}" ] || return 0
    {
        printf '%s\n' "$setup_lines" "echo; echo '$mark begin'"
        for name; do printf '%s\n' "command -v $name"; done
        printf '%s\n' "echo '$mark end'"
    } >"$scratch/setup.sh"
    start "$scratch/setup" bash --login "$scratch/setup.sh"
}

describe_setup() {
    [ -n "${setup_lines:-}" ] || return 0
    await 20 "$scratch/setup"
    if ! grep -q "^$mark begin\$" "$scratch/setup"; then
        words=$(grep . "$scratch/setup.err" | tail -n 1)
        if [ -e "$scratch/setup.late" ]; then
            problem="they did not end within 20 s${words:+: $words}"
        else
            problem="they ended with exit status $(cat "$scratch/setup.rc")${words:+: $words}"
            say fact setup_problem "$problem"
        fi
        say unseen "the PATH after the set-up lines: $problem"
        return 0
    fi
    said setup | grep '^/' >"$scratch/paths"
    while IFS= read -r path; do describe setup "$path"; done <"$scratch/paths"
}

# said SHELL: what it printed between the marks
said() {
    sed -n "/^$mark begin\$/,/^$mark end\$/p" "$scratch/$1"
}

# find_venvs: in two goes, as a search that is cut short may not have written anything yet
find_venvs() {
    for depth in 3 4; do
        start "$scratch/venvs$depth" find "$HOME/" -maxdepth $depth \( -name .cache -o -name .git \
            -o -name .snapshot -o -name node_modules -o -name site-packages -o -name pkgs -o -name '.vscode*' \) \
            -prune -o -name pyvenv.cfg -print
    done
}

survey() {
    begin
    search=$1
    shift
    ask_login_shell "$@"
    ask_setup "$@"
    [ "$search" = path ] || find_venvs
    write_home
    facts
    describe_setup
    for name; do describe path "$(command -v "$name")"; done
    await 5 "$scratch/login"
    [ ! -e "$scratch/login.late" ] || say unseen "the login shell's PATH: $SHELL did not answer within 5 s"
    said login | grep '^/' >"$scratch/paths"
    while IFS= read -r path; do describe login "$path"; done <"$scratch/paths"
    [ "$search" = path ] || search_home
    say fact home_problem "$(home_problem)"
    exit 0
}

search_home() {
    for base in "$CONDA_EXE" "$(said login | sed -n 's/^CONDA_EXE=//p')"; do
        case $base in */bin/*) conda "${base%/bin/*}" ;; esac
    done
    for base in "$MAMBA_ROOT_PREFIX" "$HOME"/miniconda3 "$HOME"/anaconda3 "$HOME"/miniforge3 "$HOME"/mambaforge \
        "$HOME"/micromamba "$HOME"/.conda /opt/conda; do
        conda "$base"
    done
    if [ -r "$HOME/.conda/environments.txt" ]; then
        while IFS= read -r base; do describe conda "$base/bin/python"; done <"$HOME/.conda/environments.txt"
    fi
    for path in "$HOME"/.local/share/uv/python/*/bin/python3; do describe uv "$path"; done
    await 4 "$scratch/venvs3" "$scratch/venvs4"
    [ ! -e "$scratch/venvs4.late" ] || say unseen "virtual environments in all of $HOME: it is large or slow"
    cat "$scratch/venvs3" "$scratch/venvs4" | head -n 60 >"$scratch/paths"
    while IFS= read -r path; do describe venv "${path%/pyvenv.cfg}/bin/python"; done <"$scratch/paths"
    for path in "$HOME"/.local/share/jupyter-gpu-kernel-envs/*/jupyter-gpu-kernel-environment.json; do
        describe ours "${path%/*}/bin/python"
    done
}

# conda BASE: the environments first; the base is seldom where the work is
conda() {
    [ -n "$1" ] && [ -d "$1" ] || return 0
    for environment in "$1"/envs/*; do describe conda "$environment/bin/python"; done
    describe conda "$1/bin/python"
}

# --- Pythons, by themselves ---

# Runs on any Python since 2.7, and imports neither ipykernel nor zmq. "?" is a package without a version.
code='
import json, sys
def version(name, module):
    from importlib import metadata, util
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "?" if util.find_spec(module) else None
facts = {"executable": sys.executable, "version": ".".join(map(str, sys.version_info[:3])), "prefix": sys.prefix}
if sys.version_info >= (3, 8):
    facts.update(ipykernel=version("ipykernel", "ipykernel"), pyzmq=version("pyzmq", "zmq"))
print("\nfacts " + json.dumps(facts))
'

# try SECONDS PATH...: a line "tried PATH END FACTS" each; END: 0, another exit status with the last words, or "late"
try() {
    begin
    seconds=$1
    shift
    outs=
    number=0
    for path; do
        number=$((number + 1))
        start "$scratch/$number" "$path" -B -c "$code"
        outs="$outs $number"
    done
    # shellcheck disable=SC2086 # numbers, to be split
    (cd "$scratch" && await "$seconds" $outs)
    number=0
    for path; do
        number=$((number + 1))
        out=$scratch/$number
        if [ -e "$out.late" ]; then
            say tried "$path" late ""
        elif grep -q '^facts ' "$out"; then
            say tried "$path" 0 "$(sed -n 's/^facts //p' "$out" | tail -n 1)"
        else
            say tried "$path" "$(cat "$out.rc")" "$(grep . "$out.err" | tail -n 1)"
        fi
    done
    exit 0
}
