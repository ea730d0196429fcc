#!/bin/bash
# Epilog= of slurm.conf, on every node, as root: writes doctor-JOBID-NODE.txt beside the job's output, if the job died.
# Root reads the kernel log and nothing else; the user's files are read and written with the user's own rights.
# An epilog that fails drains the node, so this one always ends with 0, and takes two minutes at most.
notes=${DOCTOR_NOTES:-/run/rlhfdoctor}
doctor=${DOCTOR:-/opt/rlhfdoctor/bin/doctor}
case $SLURM_JOB_ID in '' | *[!0-9]*) exit 0 ;; esac
began=$(cat "$notes/$SLURM_JOB_ID" 2> /dev/null)
rm -f "$notes/$SLURM_JOB_ID"
[ -n "$began" ] && [ -n "$SLURM_JOB_UID" ] && [ -n "$SLURM_JOB_GID" ] || exit 0

output=$SLURM_JOB_STDOUT
case $output in   # absent in old releases; others hand over the pattern, such as ppo-%j.out
    '' | *%*) output=$(scontrol show job "$SLURM_JOB_ID" 2> /dev/null | sed -n 's/^ *StdOut=//p') ;;
esac
case $output in /*) ;; *) exit 0 ;; esac

as_user() {
    if [ "$(id -u)" = "$SLURM_JOB_UID" ]; then "$@"; else
        setpriv --reuid "$SLURM_JOB_UID" --regid "$SLURM_JOB_GID" --init-groups --reset-env -- "$@"
    fi
}
own_kills() {   # kills of other jobs on this node are nobody's business: the kernel names the cgroup, ours ends in job_ID
    awk -v own="/job_$SLURM_JOB_ID[/,:]" '
        /invoked oom-killer/ { report = ""; within = 1 }
        within { report = report $0 "\n"; if (/Killed process/) { if (report ~ own) printf "%s", report; within = 0 }; next }
        { print }'
}
verdict=$(dirname -- "$output")/doctor-$SLURM_JOB_ID-$(hostname -s).txt
TZ=UTC dmesg --time-format iso --since "$began" 2> /dev/null | own_kills |
    as_user timeout 120 "$doctor" analyze --since "$began" --out "$verdict" -- - "$output" > /dev/null 2>&1
[ $? -eq 1 ] || as_user rm -f -- "$verdict"   # 1: an incident; else there is nothing to say
exit 0
