# Prints which GPUs are in use, if Slurm tells it; how much memory a job gets by default; and the partitions that the user
# may use, with their nodes. The exit status is that of the last command.

sinfo -h -N -O NodeList:80,GresUsed:400 2>/dev/null </dev/null | sort -u | awk 'NF > 1 { print "used|" $1 "|" $2 }'
scontrol show config 2>/dev/null </dev/null | sed -n 's/^DefMemPer\([A-Za-z]*\) *= *\(.*\)/memory|\1|\2/p'
sinfo -h -N -o '%N|%P|%T|%G|%C|%m|%l|%L|%a' </dev/null
