# Prints the user's job with the id in `job` and the name in `name` from Slurm's accounting, where there is one: as one
# line with the fields of `scontrol -o show job`, and CancelledBy.

found=$(sacct -X -n -P -u "$(id -un)" -j "$job" --name="$name" \
    -o State,ExitCode,Reason,NodeList,Timelimit,ReqMem </dev/null | tail -n 1)
uid=$(printf '%s\n' "$found" | sed -n 's/^CANCELLED by \([0-9][0-9]*\)|.*/\1/p')
by=
if [ -n "$uid" ]; then
    by=$(id -un "$uid" 2>/dev/null || echo "uid $uid")
    if [ "$uid" = "$(id -u)" ]; then by="you ($by)"; fi
fi
printf '%s\n' "$found" | awk -F'|' -v by="$by" 'NF == 6 {
    sub(/ .*/, "", $1)
    print "JobState=" $1, "ExitCode=" $2, "Reason=" $3, "BatchHost=" $4, "TimeLimit=" $5, "MinMemoryNode=" $6,
        "CancelledBy=" by
}'
