#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Scripts and Python keep to the rules of .shellcheckrc and pyproject.toml. Exit code 77, in CI 1: a linter is missing.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
PATH=$(dirname "${FINETUNE_TEST_PYTHON:-python3}"):$PATH
if ! command -v shellcheck >/dev/null || ! command -v ruff >/dev/null; then
  echo "shellcheck or ruff is missing"
  [[ ${CI:-} != true ]] || exit 1
  exit 77
fi
"$root/scripts/ci/lint" --shell
"$root/scripts/ci/lint" --python
