#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The layer check must refuse each of these includes and lines.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

refuse() {  # refuse FILE INCLUDE REASON
  rm -rf "$folder/include" "$folder/src"
  mkdir -p "$folder/include/finetune" "$folder/src" "$folder/$(dirname "$1")"
  printf '#include %s\n' "$2" >"$folder/$1"
  output=$(python3 "$root/scripts/check_layers.py" "$folder") &&
    { echo "not refused: $1 includes $2"; exit 1; }
  case $output in
    "$1:1: "*"$3"*) ;;
    *) printf 'for %s including %s: %s\n' "$1" "$2" "$output"; exit 1 ;;
  esac
}
accept() {  # accept FILE INCLUDE
  rm -rf "$folder/include" "$folder/src"
  mkdir -p "$folder/include/finetune" "$folder/src" "$folder/$(dirname "$1")"
  printf '#include %s\n' "$2" >"$folder/$1"
  python3 "$root/scripts/check_layers.py" "$folder"
}

refuse src/data/a.cpp '"finetune/tensor/tensor.h"' "data may not include tensor"
refuse src/checkpoint/a.cpp '"finetune/optim/adamw.h"' "checkpoint may not include optim"
refuse src/base/a.cpp '"finetune/config/load.h"' "base may not include config"
refuse src/task/a.cpp '"model/bert.h"' "private header of model"
refuse src/task/clm/a.cpp '"task/sft/sft.h"' "task/clm may not include task/sft"
refuse src/task/loss/a.cpp '"task/sft/sft.h"' "task/loss may not include task/sft"
refuse src/task/loss/a.cpp '"task/setup/text_setup.h"' "task/loss may not include task/setup"
refuse src/model/a.cpp '<torch/nn/module.h>' "not for model"
refuse src/kernels/a.cpp '"finetune/nn/pass.h"' "kernels may not include nn"
refuse src/config/a.cpp '<ATen/core/Tensor.h>' "not for config"
refuse src/train/save/a.cpp '"train/loop/update.h"' "train/save may not include train/loop"
refuse src/data/readers/a.cpp '"data/columns/row.h"' "data/readers may not include data/columns"
refuse src/cli/process/a.cpp '"cli/commands/dry_run.h"' "cli/process may not include cli/commands"
refuse src/train/a.cpp '<torch/torch.h>' "not for train"
refuse include/finetune/config/a.h '<nlohmann/json.hpp>' "belongs in a source"
refuse src/optim/a.cpp '"finetune/config/training_args.h"' "not for optim"
refuse src/helpers/a.cpp '"finetune/base/error.h"' "no area helpers"
accept src/train/a.cpp '"finetune/kernels/dropout.h"'
accept src/train/loop/a.cpp '"train/save/saving.h"'
accept src/config/load.cpp '"config/rules/derive.h"'
accept src/cli/a.cpp '"finetune/tokenizer/tokenizer.h"'
accept src/model/a.cpp '"finetune/nn/pass.h"'

# A page names files that exist.
rm -rf "$folder/include" "$folder/src"
mkdir -p "$folder/include/finetune/data" "$folder/src/data/readers"
: >"$folder/include/finetune/data/rows.h"
: >"$folder/src/data/readers/lines.cpp"
# shellcheck disable=SC2016  # backquotes of Markdown
printf '| `readers/` | `lines.cpp`, `rows.h` |\n`gone.h`\n' >"$folder/src/data/README.md"
output=$(python3 "$root/scripts/check_layers.py" "$folder") && { echo "not refused: a file that a page names"; exit 1; }
[[ $output == "src/data/README.md:2: there is no gone.h" ]] || { printf '%s\n' "$output"; exit 1; }

# A public header belongs to the folder of its source.
rm -rf "$folder/include" "$folder/src"
mkdir -p "$folder/include/finetune" "$folder/src/data/readers" "$folder/src/data/pretraining"
printf '#include "finetune/data/shard_writer.h"\n' >"$folder/src/data/readers/data_files.cpp"
: >"$folder/src/data/pretraining/shard_writer.cpp"
output=$(python3 "$root/scripts/check_layers.py" "$folder") &&
  { echo "not refused: a public header of a later folder"; exit 1; }
case $output in
  "src/data/readers/data_files.cpp:1: data/readers may not include data/pretraining") ;;
  *) printf '%s\n' "$output"; exit 1 ;;
esac

ask() {  # ask FILE LINE -> the check's message about this line in this file
  rm -rf "$folder/include" "$folder/src"
  mkdir -p "$folder/include/finetune" "$folder/src" "$folder/$(dirname "$1")"
  printf '%s\n' "$2" >"$folder/$1"
  python3 "$root/scripts/check_layers.py" "$folder"
}
for question in 'if (x.is_cpu()) {' 'if (!weight.is_cuda()) {' 'switch (x.device().type()) {' \
                'case c10::DeviceType::CUDA:'; do
  for file in src/kernels/a.cpp src/kernels/cpu/a.cpp include/finetune/kernels/a.h src/optim/a.cpp; do
    ask "$file" "$question" >"$folder/output" && { echo "not refused in $file: $question"; exit 1; }
    grep -q "^$file:1: only src/kernels/kernels.cpp asks" "$folder/output" || { cat "$folder/output"; exit 1; }
  done
  ask src/kernels/kernels.cpp "$question"
  ask src/train/a.cpp "$question"
done

# A Trainer that grew again is refused.
rm -rf "$folder/src"
mkdir -p "$folder/src/train/loop"
{
  printf 'class Trainer {\n public:\n'
  for i in $(seq 26); do printf '  void step_%s(int count = 1) { count_ += count; }\n' "$i"; done
  printf ' private:\n  int count_ = 0;\n};\n'
} >"$folder/src/train/loop/trainer.h"
output=$(python3 "$root/scripts/check_layers.py" "$folder") && { echo "26 member functions are not refused"; exit 1; }
case $output in
  "src/train/loop/trainer.h:1: Trainer has 26 member functions and 1 data members"*) ;;
  *) echo "$output"; exit 1 ;;
esac
