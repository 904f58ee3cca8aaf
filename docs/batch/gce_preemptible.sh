#!/bin/bash
# Start-up script of a preemptible (spot) instance of Google Compute Engine, in an instance group of size 1
# that starts another one when it is taken away:
#
#   gcloud compute instance-templates create finetune --provisioning-model=SPOT \
#     --instance-termination-action=DELETE --scopes=storage-rw \
#     --metadata-from-file=startup-script=docs/batch/gce_preemptible.sh,shutdown-script=docs/batch/gce_shutdown.sh
#   gcloud compute instance-groups managed create finetune --template=finetune --size=1
#
# The instance's account reads and writes the bucket, which also holds run.yaml and its data in "input".
set -u
bucket=${FINETUNE_BUCKET:-gs://my-bucket}
work=${FINETUNE_WORK:-/var/finetune}
mkdir -p "$work" && cd "$work" || exit 1
if ! command -v finetune >/dev/null; then
  python3 -m venv /opt/finetune && /opt/finetune/bin/pip install --quiet 'finetune[bucket]'
  PATH=/opt/finetune/bin:$PATH
fi
[ -e input ] || gcloud storage cp --recursive "$bucket/input" .
finetune train input/run.yaml --output_dir run --mirror_dir "$bucket/runs/a" &
echo $! >train.pid
wait $!
status=$?
# Finished, or something that another start does not fix: no further instance.
case $status in
  0 | 2 | 3) gcloud compute instance-groups managed resize finetune --size=0 ;;
esac
exit "$status"
