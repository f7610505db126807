# Prints the partitions that the user may use, with their nodes; which GPUs are in use, if Slurm tells it; and how much
# memory a job gets by default.

{ sinfo -h -N -o '%N|%P|%T|%G|%C|%m|%l|%L|%a' </dev/null; echo "=== status $?"; } | head -n 18000
sinfo -h -N -O NodeList:80,GresUsed:400 </dev/null | sort -u | awk 'NF > 1 { print "used|" $1 "|" $2 }'
scontrol show config </dev/null | sed -n 's/^DefMemPer\([A-Za-z]*\) *= *\(.*\)/memory|\1|\2/p'
