#!/bin/bash
# Shutdown script of gce_preemptible.sh: within the 30 seconds that a preempted instance has, the run saves and
# sends its newest checkpoint.
pid=$(cat "${FINETUNE_WORK:-/var/finetune}/train.pid") || exit 0
kill -TERM "$pid"
tail --pid="$pid" -f /dev/null
