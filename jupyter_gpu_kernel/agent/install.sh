# Makes the agent's folder on this node, asks for the agent if it is not there yet, and becomes `attach`.
# Read whole before it runs (braces), so that what follows on stdin is not taken for a line of it.
# Given before it: name (of the agent's folder), size (of its files, bytes), sum (of their contents in order, SHA-256),
# python, command ("attach"). In a batch script, command is "job", and agent holds the agent's files as they are sent,
# in base64: nobody answers there.
{
say() { printf '%s\n' "$1" >&2; }

# others_write FOLDER: whether others can rename what lies in this folder, or in one above it: they write there, and the
# sticky bit does not keep them from it. A group of the user's own name has no other members.
others_write() {
    above=$(cd -P "$1" 2>/dev/null && pwd -P) || return 0
    set -- "$above"
    while [ "$above" != / ]; do
        above=${above%/*}
        above=${above:-/}
        set -- "$@" "$above"
    done
    group=
    if [ "$(id -gn 2>/dev/null)" = "$(id -un 2>/dev/null)" ]; then group="! -group $(id -g)"; fi
    # shellcheck disable=SC2086 # words of find
    [ -n "$(find "$@" -prune \( -perm -0002 -o -perm -0020 $group \) ! -perm -1000 2>/dev/null)" ]
}

hash='import hashlib, sys; print(hashlib.sha256(sys.stdin.buffer.read()).hexdigest())'

# is_agent FOLDER: whether it is a folder of ours, and the agent's sources are in it.
is_agent() {
    if [ ! -d "$1" ] || [ -L "$1" ] || [ ! -O "$1" ]; then return 1; fi
    found=$(cd "$1" && find . -name '*.py' -type f | LC_ALL=C sort | xargs cat |
        { sha256sum || shasum -a 256 || "$python" -I -c "$hash"; } 2>/dev/null)
    [ "${found%% *}" = "$sum" ]
}

read='import base64, os, sys, zlib; data = sys.stdin.buffer.read(); data = '
write='
words = data.split(b"\0")
for name, source in zip(words[::2], words[1::2]):
    path = os.path.join(sys.argv[1], name.decode())
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "xb") as file:
        file.write(source)
'

# receive FOLDER: unpacks the agent into it, from the batch script or from stdin, where the length comes first.
receive() {
    if [ "$command" = job ]; then
        printf '%s' "$agent" | "$python" -I -c "${read}zlib.decompress(base64.b64decode(data))$write" "$1"
    else
        read -r length && head -c "$length" | "$python" -I -c "import $packing; ${read}$packing.decompress(data)$write" "$1" 2>/dev/null
    fi
}

# rename FOLDER NAME: fails if there is something else, where mv would move the folder into another one.
rename() { "$python" -I -c 'import os, sys; os.rename(*sys.argv[1:])' "$1" "$2" 2>/dev/null; }

# has MODULE: whether the Python starts, and has it.
has() { "$python" -I -c "import $1" </dev/null >/dev/null; }

uid=$(id -u)
node=$(uname -n)
pointer=$HOME/.local/share/jupyter-gpu-kernel/$node
if [ -n "${JUPYTER_GPU_KERNEL_BASE:-}" ]; then
    set -- "$JUPYTER_GPU_KERNEL_BASE/jupyter-gpu-kernel-$uid"
else
    set -- "/tmp/jupyter-gpu-kernel-$uid" "/var/tmp/jupyter-gpu-kernel-$uid" "$HOME/.cache/jupyter-gpu-kernel-$node"
    if [ -r "$pointer" ] && read -r known < "$pointer" && [ -d "$known" ] && [ "${known#/}" != "$known" ]; then set -- "$known" "$@"; fi
fi

place=
new=
trap 'if [ -n "$new" ]; then rm -rf "$new" "$new.old"; fi' EXIT
for root; do
    mkdir -p "${root%/*}" 2>/dev/null
    # A folder that is a link or somebody else's may be a trap: /tmp is everybody's.
    if others_write "${root%/*}"; then say "others can write to ${root%/*}, or above it"; continue; fi
    mkdir -m 700 "$root" 2>/dev/null
    if [ ! -d "$root" ] || [ -L "$root" ] || [ ! -O "$root" ]; then continue; fi
    chmod 700 "$root" || continue
    if is_agent "$root/$name"; then place=$root; break; fi
    new=$root/.new-$$
    rm -rf "$new"
    if (umask 077; exec dd if=/dev/zero of="$new" bs="$size" count=1) 2>/dev/null; then place=$root; break; fi
    rm -f "$new"
    new=
done
if [ -z "$place" ]; then
    say "no folder on this node takes $size bytes (tried: $*)"
    exit 94
fi
if [ ! -x "$python" ]; then
    say "$python is not there, or not a program"
    exit 95
fi
if [ -n "$new" ]; then
    packing=bz2
    if [ "$command" = job ] || ! has bz2 2>/dev/null; then
        packing=zlib
        has zlib || exit # with its status, which says why it cannot be run
    fi
    if [ "$command" = attach ]; then printf '\n%s\n' "jupyter-gpu-kernel: send $packing"; fi
    rm -f "$new"
    (umask 077; mkdir "$new" && receive "$new")
    # Where the connection breaks, or the disk is full by now, there is less. Another process may have installed it.
    if is_agent "$new" && ! rename "$new" "$place/$name" && ! is_agent "$place/$name"; then
        mv -f "$place/$name" "$new.old"
        rename "$new" "$place/$name"
    fi
    rm -rf "$new" "$new.old"
    if ! is_agent "$place/$name"; then
        say "the agent did not arrive whole in $place (or nothing here computes its SHA-256)"
        exit 94
    fi
fi
if [ -z "${JUPYTER_GPU_KERNEL_BASE:-}" ] && [ "${known:-}" != "$place" ]; then
    mkdir -p "${pointer%/*}" 2>/dev/null && (printf '%s\n' "$place" > "$pointer") 2>/dev/null
fi
# In use: not for those who clean /tmp. Once a day, since compiled modules have the times of their sources.
if [ -n "$(find "$place/$name" -prune -mtime +0)" ]; then find "$place/$name" -exec touch -c {} +; fi
unset agent # too long for an environment, if the user's lines export all variables
exec "$python" -I "$place/$name" "$command"
}
