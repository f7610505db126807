# Finds Slurm's commands: in PATH, in the usual folders, or where a login shell has them. Ends with 127 if there are none.

found() { command -v sbatch >/dev/null 2>&1; }

folder= conf=
if ! found; then
    for one in /usr/local/bin /opt/slurm/bin /opt/slurm/current/bin /usr/local/slurm/bin /usr/slurm/bin \
        /cm/shared/apps/slurm/current/bin; do
        if [ -x "$one/sbatch" ]; then
            folder=$one PATH=$one:$PATH
            break
        fi
    done
fi
if ! found; then  # a module that only login shells load
    where='printf "\n%s|%s|%s\n" "$(command -v sbatch)" "${SLURM_CONF:-}" end'
    line=$(bash -lc "$where" </dev/null 2>/dev/null | tail -n 1)
    folder=${line%%/sbatch|*} line=${line#*|}
    conf=${line%%|*}
    case $folder in /*) PATH=$folder:$PATH ;; *) folder= ;; esac
    if [ -n "$conf" ]; then export SLURM_CONF="$conf"; fi
fi
if found; then
    printf 'user|%s\nfolder|%s\nconf|%s\nversion|' "$(id -un)" "$folder" "$conf"
    sbatch --version </dev/null
    scontrol show config 2>/dev/null </dev/null | grep '^PrivateData' | head -n 1
    true
else
    (exit 127)
fi
