#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Every file in configs/ trains two steps on the text of the project; the pair in two formats is
# equivalent.
set -eu
binary=$1
root=$(cd "$(dirname "$0")/../.." && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$binary" config schema | cmp - "$root/docs/schema.json" || {
  echo "docs/schema.json is out of date: build/finetune config schema > docs/schema.json"
  exit 1
}
for config in "$root"/configs/*.yaml; do
  # shellcheck disable=SC2016  # a word of the file, no variable
  head -n 1 "$config" | grep -qx '# yaml-language-server: $schema=../docs/schema.json' ||
    { echo "$config does not name its schema"; exit 1; }
done

ESPERANTO_DATA=$folder
JAPANESE_DATA=$folder/japanese
SHAKESPEARE_DATA=$folder
export ESPERANTO_DATA JAPANESE_DATA SHAKESPEARE_DATA
mkdir "$JAPANESE_DATA"
awk 'NR % 20 == 0 { print "" } 1' "$root/tests/fixtures/text/lighthouse.txt" >"$JAPANESE_DATA/a.txt"

for config in "$root"/configs/*; do
  name=$(basename "$config")
  echo "== $name"
  # Files that a configuration expects to be created or downloaded first are replaced by the tests'
  # data; configurations of labelled tasks have theirs. A model of 84 million parameters keeps its
  # size but reads one row at a time.
  set -- --train_file "$root/tests/fixtures/text/lighthouse.txt" \
    --validation_file "$root/tests/fixtures/text/lighthouse-valid.txt"
  if grep -q '^task: ' "$config" && ! grep -q '^task: mlm' "$config"; then set --; fi
  # A model of 128 million parameters at 4,096 tokens keeps its task, data, schedule and sparse
  # attention.
  if [ "$name" = bigbird_pretraining.yaml ]; then
    set -- --max_seq_length 512 --max_predictions_per_seq 60 --config_overrides \
      "num_hidden_layers=2,num_attention_heads=2,hidden_size=32,intermediate_size=64,max_position_embeddings=512,block_size=16,num_random_blocks=1"
  fi
  # A model of 135 million parameters that must be downloaded keeps its task, splitting and
  # schedule.
  if [ "$name" = smollm2_shakespeare.yaml ]; then
    set -- --train_file "$root/tests/fixtures/text/lighthouse.txt" --max_seq_length 64 \
      --model_name_or_path null --model_type llama --config_overrides \
      "num_hidden_layers=2,num_attention_heads=4,num_key_value_heads=2,hidden_size=32,intermediate_size=64"
  fi
  # Their base is a small model instead of the one that must be downloaded.
  if [ "$name" = lora.yaml ] || [ "$name" = qlora.yaml ] || [ "$name" = chat.yaml ] ||
    [ "$name" = dpo.yaml ]; then
    [ -d "$folder/base" ] ||
      "$binary" train "$root/configs/clm.yaml" --output_dir "$folder/base" \
        --cache_dir "$folder/cache" --max_steps 1 --save_strategy no --eval_strategy no \
        --tokenizer_name "$root/tests/fixtures/tokenizers/lighthouse" >"$folder/log" 2>&1 ||
      { cat "$folder/log"; exit 1; }
    set -- --train_file "$root/tests/fixtures/text/lighthouse.txt" --max_seq_length 64 \
      --model_name_or_path "$folder/base"
  fi
  if [ "$name" = chat.yaml ]; then
    set -- "$@" --train_file "$root/tests/fixtures/tasks/keeper-train.jsonl" \
      --validation_file "$root/tests/fixtures/tasks/keeper-valid.jsonl" --chat_template_path alpaca
  fi
  if [ "$name" = dpo.yaml ]; then
    set -- "$@" --train_file "$root/tests/fixtures/tasks/pairs-train.jsonl" \
      --validation_file "$root/tests/fixtures/tasks/pairs-valid.jsonl" --chat_template_path alpaca
  fi
  if [ "$name" = embedding.yaml ]; then
    set -- --train_file "$root/tests/fixtures/tasks/answers-train.jsonl" --text_columns "[question, answer]" \
      --validation_file "$root/tests/fixtures/tasks/answers-valid.jsonl" --max_seq_length 32 \
      --model_name_or_path null --model_type bert --effective_batch_size null --config_overrides \
      "num_hidden_layers=2,num_attention_heads=4,hidden_size=32,intermediate_size=64"
  fi
  if [ "$name" = embedding_small.yaml ]; then set -- --effective_batch_size null; fi
  "$binary" train "$config" --output_dir "$folder/$name" --cache_dir "$folder/cache" \
    --max_steps 2 --logging_steps 1 --load_best_model_at_end false --save_strategy no \
    --eval_strategy no \
    --tokenizer_name "$root/tests/fixtures/tokenizers/lighthouse" \
    --per_device_train_batch_size 1 --gradient_accumulation_steps 2 "$@" >"$folder/log" 2>&1 ||
    { cat "$folder/log"; exit 1; }
  python3 - "$folder/$name/trainer_state.json" <<'PYTHON'
import json, sys
state = json.load(open(sys.argv[1]))
steps = [entry["step"] for entry in state["log_history"] if "loss" in entry]
assert state["global_step"] == 2 and steps == [1, 2], state
PYTHON
  rm -rf "${folder:?}/$name"
done
