#!/bin/bash
# Shutdown script of gce_preemptible.sh: within the 30 seconds that a preempted instance has, the run saves and
# sends its newest checkpoint. Both scripts get the notice, and the trainer gets one SIGTERM.
work=${FINETUNE_WORK:-/var/finetune}
script=$(cat "$work/script.pid" 2>/dev/null)
child=$(cat "$work/child.pid" 2>/dev/null)
if [ -n "$script" ] && kill -TERM "$script" 2>/dev/null; then
  tail --pid="$script" -f /dev/null
elif [ -n "$child" ] && kill -TERM "$child" 2>/dev/null; then  # the script itself was killed
  tail --pid="$child" -f /dev/null
fi
