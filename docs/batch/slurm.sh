#!/bin/bash
# Trains until the run is finished, in as many time slots as it takes:
#
#   sbatch docs/batch/slurm.sh run.yaml [--key value ...]
#
# Two processes on one machine; with more than one node, set MASTER_ADDR and GLOO_SOCKET_IFNAME too.
#SBATCH --job-name=finetune
#SBATCH --nodes=1
#SBATCH --ntasks=2
#SBATCH --cpus-per-task=8
#SBATCH --time=04:00:00
#SBATCH --requeue
#SBATCH --open-mode=append
# Five minutes before the limit every process of the step gets SIGUSR1, saves and exits with 75. A
# preempted job gets SIGTERM, which does the same.
#SBATCH --signal=USR1@300

config=${1:?usage: sbatch slurm.sh CONFIG [--key value ...]}
shift

export OMP_NUM_THREADS=${SLURM_CPUS_PER_TASK:-1}
status=0
# Rank 0 may still be saving when another rank has exited.
srun --kill-on-bad-exit=0 finetune train "$config" "$@" || status=$?
if [ "$status" -eq 75 ]; then
  echo "stopped early, everything is saved: back into the queue"
  scontrol requeue "$SLURM_JOB_ID"
fi
exit "$status"
