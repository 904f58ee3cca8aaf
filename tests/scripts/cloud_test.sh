#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The examples in docs/batch end the machine that is paid for, however training ends.
set -eu
exec "${FINETUNE_TEST_PYTHON:-${FINETUNE_PYTHON:-python3}}" "$(dirname "$0")/cloud_examples.py"
