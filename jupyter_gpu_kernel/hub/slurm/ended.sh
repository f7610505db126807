# Prints the user's id; what the controller shows of the job with the id in `job`; the line "accounting:"; and, unless the
# controller shows how the user's job of the name in `name` is or has ended, that job from Slurm's accounting, where there
# is one: as one line with the fields of `scontrol -o show job`, and CancelledBy. The exit status is that of scontrol.

id -u
shown=$(scontrol -o show job "$job" </dev/null)
status=$?
printf '%s\naccounting:\n' "$shown"
case $shown in
    "JobId=$job JobName=$name UserId="*" JobState=CANCELLED "*) known= ;; # but not by whom
    "JobId=$job JobName=$name UserId="*) known=yes ;;
    *) known= ;;
esac
if [ -z "$known" ]; then
    found=$(sacct -X -n -P -u "$(id -un)" -j "$job" --name="$name" \
        -o State,ExitCode,Reason,NodeList,Timelimit,ReqMem </dev/null 2>/dev/null | tail -n 1)
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
fi
(exit $status)
