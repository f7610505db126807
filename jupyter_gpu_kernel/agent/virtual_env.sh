# Makes a virtual environment of ours on the work node, for `add --create-env`.
# The hub sends this text to /bin/sh (hub/virtual_env.py), with `path` and other variables set before it, and
# calls one of the functions `plan` and `create` behind it. What they print for the hub begins with a word and “|”; a
# line “problem|CODE|TEXT” ends them.
#
# An environment is ours, and complete, if its record says so, a file that names the environment's own path, so that a
# copy of it proves nothing. While it is made, the file `unfinished` names the process that makes it.

umask 077
case $path in "~/"*) path=$HOME/${path#"~/"} ;; esac
record=$path/jupyter-gpu-kernel-environment.json
unfinished=$path/.jupyter-gpu-kernel-unfinished
wheels=$path/.jupyter-gpu-kernel-wheels

problem() {
    printf 'problem|%s|%s\n' "$1" "$2"
    exit 1
}

# --- what there is

# Whether a process is making the environment. Processes of another node are known only by the age of their file.
is_being_made() {
    read -r node pid <"$unfinished" || return 1
    if [ "$node" = "$(uname -n)" ]; then kill -0 "$pid" 2>/dev/null; else [ -n "$(find "$unfinished" -mmin -30)" ]; fi
}

# Sets `state` to new, ours, or left (by a process that was killed). Ends if no environment may be made here.
look() {
    state=new
    [ -e "$path" ] || [ -L "$path" ] || return 0
    if [ -d "$path" ] && [ ! -L "$path" ] && [ -O "$path" ]; then
        entries=$(ls -A "$path")  # first, as another process may begin or end meanwhile
        if [ -z "$entries" ]; then
            return 0
        elif [ -e "$unfinished" ]; then
            state=left
            if is_being_made; then problem busy "$path is being made by another process"; fi
            return 0
        elif [ -f "$record" ]; then
            state=ours
            starts "import ipykernel, zmq" >/dev/null || problem broken "the Python in $path does not start"
            return 0
        fi
    fi
    problem foreign "$path exists, and is not an environment that add --create-env made"
}

starts() {
    "$path/bin/python" -I -c "$1" </dev/null 2>&1
}

# Ends if every user of the node could replace what is made here.
refuse_open() {
    place=$path
    while [ "$place" != / ]; do
        if [ -d "$place" ] && [ -n "$(find "$place" -prune -perm -0002 ! -perm -1000)" ]; then
            problem open "every user of the node can write to $place, and replace what is in it"
        fi
        place=$(dirname "$place")
    done
}

plan() {
    look
    refuse_open
    printf 'path|%s\nstate|%s\n' "$path" "$state"
    if [ "$state" = ours ]; then printf 'record|%s\n' "$(cat "$record")"; fi
    if ls /lib/ld-musl-* >/dev/null 2>&1; then echo 'musl|yes'; fi
}

# --- make

run() {
    "$@" </dev/null 2>&1 || problem make "exit status $? of $1"
}

# The variables `python`, `wanted` and `content` (of the record) are set. On stdin: a zip file with the wheels, as base64.
create() {
    look
    if [ "$state" = ours ]; then problem busy "$path is complete already: another process has made it"; fi
    if [ "$state" = left ]; then rm -rf "$path"; fi
    mkdir -p "$path" || problem write "$path cannot be made"
    if [ -e "$unfinished" ]; then problem busy "$path is being made by another process"; fi
    (set -C; echo "$(uname -n) $$" >"$unfinished") || problem write "$unfinished cannot be made"
    trap 'rm -rf "$path"; case $path in */jupyter-gpu-kernel-envs/*) rmdir "${path%/*}" 2>/dev/null ;; esac' EXIT
    trap 'exit 1' HUP INT PIPE TERM
    unpack='import base64, io, sys, zipfile
zipfile.ZipFile(io.BytesIO(base64.b64decode(sys.stdin.buffer.read()))).extractall(sys.argv[1])'
    "$python" -I -c "$unpack" "$wheels" 2>&1 || problem make "the wheels were not received as they were sent"
    run "$python" -I -m venv --without-pip "$path"
    for pip in "$wheels"/pip-*.whl; do :; done
    export PIP_CONFIG_FILE=/dev/null TMPDIR="$wheels" LC_ALL=C
    run "$path/bin/python" -I "$pip/pip" --isolated --no-input --disable-pip-version-check --no-cache-dir --quiet \
        install --no-compile --no-index --find-links "$wheels" $wanted
    starts "import ipykernel.kernelapp, zmq" || problem start "ipykernel does not start in $path"
    rm -rf "$wheels"
    printf '%s\n' "$content" >"$record" || problem write "$record cannot be written"
    trap - EXIT
    rm "$unfinished"
    printf 'kib|%s\n' "$(du -sk "$path" | cut -f 1)"
}
