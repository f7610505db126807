# Makes the agent's folder on this node, asks for the agent if it is not there yet, and becomes `attach`.
# Read whole before it runs (braces), so that what follows on stdin is not taken for a line of it.
# Given before it: name (of the agent's file), size (of it, bytes), sum (of it, SHA-256), python, command ("attach").
# In a batch script, command is "job", and agent holds the agent's file, compressed, in base64: nobody answers there.
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

# is_agent FILE: whether it is a file of ours, and the agent's bytes are in it.
is_agent() {
    if [ ! -f "$1" ] || [ -L "$1" ] || [ ! -O "$1" ]; then return 1; fi
    found=$({ sha256sum || shasum -a 256 || "$python" -I -c "$hash"; } < "$1" 2>/dev/null)
    [ "${found%% *}" = "$sum" ]
}

unpack='import base64, sys, zlib; data = sys.stdin.buffer.read(); sys.stdout.buffer.write('

# receive: prints the agent's bytes, from the batch script or from stdin, where its length comes first.
receive() {
    if [ "$command" = job ]; then
        printf '%s' "$agent" | "$python" -I -c "${unpack}zlib.decompress(base64.b64decode(data)))"
    else
        read -r length && head -c "$length" | "$python" -I -c "import $packing; $unpack$packing.decompress(data))" 2>/dev/null
    fi
}

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
trap 'rm -f "$new"' EXIT
for root; do
    mkdir -p "${root%/*}" 2>/dev/null
    # A folder that is a link or somebody else's may be a trap: /tmp is everybody's.
    if others_write "${root%/*}"; then say "others can write to ${root%/*}, or above it"; continue; fi
    mkdir -m 700 "$root" 2>/dev/null
    if [ ! -d "$root" ] || [ -L "$root" ] || [ ! -O "$root" ]; then continue; fi
    chmod 700 "$root" || continue
    if is_agent "$root/$name"; then place=$root; break; fi
    new=$root/.new-$$
    rm -f "$new"
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
    receive > "$new"
    # Where the connection breaks, or the disk is full by now, there is less.
    if ! is_agent "$new" || ! mv -f "$new" "$place/$name" || ! is_agent "$place/$name"; then
        say "the agent did not arrive whole in $place (or nothing here computes its SHA-256)"
        exit 94
    fi
fi
if [ -z "${JUPYTER_GPU_KERNEL_BASE:-}" ] && [ "${known:-}" != "$place" ]; then
    mkdir -p "${pointer%/*}" 2>/dev/null && (printf '%s\n' "$place" > "$pointer") 2>/dev/null
fi
touch -c "$place/$name" # in use: not for those who clean /tmp
unset agent # too long for an environment, if the user's lines export all variables
exec "$python" -I "$place/$name" "$command"
}
