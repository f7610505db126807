# Prints the end of what a job has printed, whose id is in the variable `job`: from our folder on the node, or from /tmp
# if the job's process was not started. From /tmp the file is removed, as nobody else would do that; so is the folder of
# a job whose process was killed.

uid=$(id -u) user=$(id -un) node=$(uname -n)
root=jupyter-gpu-kernel-$uid
set -- "${JUPYTER_GPU_KERNEL_BASE:-/tmp}/$root/jobs" "/tmp/$root/jobs" "/var/tmp/$root/jobs" \
    "$HOME/.cache/jupyter-gpu-kernel-$node/jobs"
for jobs in "$@"; do
    socket=$jobs/$job/job  # the kernel lists it under the name at which it was bound
    if [ -O "$socket" ] && ! grep -qF "$socket" /proc/net/unix; then
        rm -f "$socket"
        rmdir "$jobs/$job"
    fi
done
for file in "$1/slurm-$job.out" "$2/slurm-$job.out" "$3/slurm-$job.out" "$4/slurm-$job.out" \
    "/tmp/jupyter-gpu-kernel-$user-"*"-$job.out"; do
    if [ ! -f "$file" ] || [ -L "$file" ] || [ ! -O "$file" ]; then continue; fi
    tail -c 65536 "$file"
    case $file in "/tmp/jupyter-gpu-kernel-$user-"*) rm -f "$file" ;; esac
    break
done
