# Prints the user's job with the id in `job` and the name in `name` from Slurm's accounting, where there is one; who has
# cancelled the job; and the user's own id.

found=$(sacct -X -n -P -u "$(id -un)" -j "$job" --name="$name" \
    -o JobIDRaw,State,ExitCode,Reason,NodeList,Partition,Timelimit,ReqMem </dev/null)
status=$?
printf '%s\n' "$found"
uid=$(printf '%s\n' "$found" | sed -n 's/.*|CANCELLED by \([0-9]*\)|.*/\1/p' | head -n 1)
if [ -n "$uid" ]; then printf 'user|%s\n' "$(id -un "$uid" 2>/dev/null)"; fi
printf 'own|%s\n' "$(id -u)"
(exit "$status")
