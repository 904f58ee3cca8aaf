# SPDX-License-Identifier: MIT
# torchrun starts two processes, which find each other through its own server and train one run.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
binary=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$root"

if ! "${FINETUNE_PYTHON:?}" -c 'import torch.distributed.run' 2>/dev/null; then
  echo "this Python cannot start torchrun"
  exit 0
fi
train() {  # train FOLDER COMMAND...: a short run in it
  local out=$1
  shift
  "$@" train configs/smoke.yaml --output_dir "$out" --cache_dir "$folder/cache" --max_steps 6 \
    --effective_batch_size 32 --per_device_train_batch_size 8 --full_determinism true \
    --use_cpu true --report_to none
}

train "$folder/alone" "$binary" 2>/dev/null
train "$folder/two" "$FINETUNE_PYTHON" -m torch.distributed.run --no-python --nproc-per-node 2 \
  --master-addr 127.0.0.1 --master-port 0 --rdzv-backend c10d --rdzv-endpoint 127.0.0.1:0 \
  "$binary" 2>"$folder/log" || { cat "$folder/log"; exit 1; }
grep -q "2 processes" "$folder/log" || { cat "$folder/log"; exit 1; }
cmp "$folder/alone/model.safetensors" "$folder/two/model.safetensors"
