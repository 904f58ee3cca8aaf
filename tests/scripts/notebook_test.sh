#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Executes the notebook with a real kernel, in a new environment with a wheel of the build folder's
# binary and a folder instead of Drive.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python=${FINETUNE_TEST_PYTHON:-${FINETUNE_PYTHON:-python3}}
"$python" -c 'import nbclient, ipykernel, matplotlib, pandas, scikit_build_core' 2>/dev/null || {
  [[ ${CI:-} != true ]] || exit 1
  echo "left out: $python lacks packages of tests/requirements.txt"
  exit 0
}
FINETUNE_PREBUILT=$FINETUNE_BUILD_DIR "$python" -m pip wheel --quiet --disable-pip-version-check \
  --no-deps --no-index --no-build-isolation --wheel-dir "$folder" "$root"
"$python" -m venv "$folder/env"
site=$("$folder/env/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
"$python" -c 'import sys; print("\n".join(path for path in sys.path if path.endswith("-packages")))' \
  >"$site/zz_lent.pth"
mkdir "$folder/drive"
"$python" "$root/tests/scripts/run_notebook.py" --wheel "$folder"/finetune_cpp-*.whl \
  --python "$folder/env/bin/python" --folder "$folder/drive" ${FINETUNE_SAVE_NOTEBOOK:+--save "$FINETUNE_SAVE_NOTEBOOK"}
