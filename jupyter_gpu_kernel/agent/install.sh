# Makes the agent's folder on this node, asks for the agent if it is not there yet, and becomes `attach`.
# Read whole before it runs (braces), so that what follows on stdin is not taken for a line of it.
# Given before it: name (of the agent's file), size (of it, bytes), python.
{
say() { printf '%s\n' "$1" >&2; }

uid=$(id -u)
node=$(uname -n)
pointer=$HOME/.local/share/jupyter-gpu-kernel/$node
if [ -n "${JUPYTER_GPU_KERNEL_BASE:-}" ]; then
    set -- "$JUPYTER_GPU_KERNEL_BASE/jupyter-gpu-kernel-$uid"
else
    set -- "/tmp/jupyter-gpu-kernel-$uid" "/var/tmp/jupyter-gpu-kernel-$uid" "$HOME/.cache/jupyter-gpu-kernel-$node"
    if [ -r "$pointer" ] && read -r known < "$pointer" && [ -d "$known" ]; then set -- "$known" "$@"; fi
fi

place=
new=
trap 'rm -f "$new"' EXIT
for root; do
    mkdir -p "${root%/*}" 2>/dev/null
    mkdir -m 700 "$root" 2>/dev/null
    # A folder that is a link or somebody else's may be a trap: /tmp is everybody's.
    if [ ! -d "$root" ] || [ -L "$root" ] || [ ! -O "$root" ]; then continue; fi
    chmod 700 "$root" || continue
    if [ -s "$root/$name" ]; then place=$root; break; fi
    new=$root/.new-$$
    if dd if=/dev/zero of="$new" bs="$size" count=1 2>/dev/null; then place=$root; break; fi
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
if [ ! -s "$place/$name" ]; then
    printf '\n%s\n' 'jupyter-gpu-kernel: send'
    head -c "$size" > "$new"
    # Where the connection breaks, or the disk is full by now, there is less.
    if [ $(wc -c < "$new") -ne "$size" ] || ! mv "$new" "$place/$name"; then
        say "the agent did not arrive whole in $place"
        exit 94
    fi
fi
if [ -z "${JUPYTER_GPU_KERNEL_BASE:-}" ] && [ "${known:-}" != "$place" ]; then
    mkdir -p "${pointer%/*}" 2>/dev/null && (printf '%s\n' "$place" > "$pointer") 2>/dev/null
fi
touch -c "$place/$name" # in use: not for those who clean /tmp
exec "$python" -I "$place/$name" attach
}
