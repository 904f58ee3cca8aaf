#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The examples for batch systems in docs/batch stop, resume and finish a run.
set -eu
exec "${FINETUNE_TEST_PYTHON:-${FINETUNE_PYTHON:-python3}}" \
  "$(dirname "$0")/batch_examples.py" --binary "$1"
