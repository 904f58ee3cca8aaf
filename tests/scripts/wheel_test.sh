#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Installs a wheel of the build folder's binary (or FINETUNE_WHEEL) without a network into new
# environments of every Python found here. It must train, and report in one sentence if torch does
# not match. Prints the seconds from `pip install` to the first loss.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
fail() {
  echo "wheel_test: $*"
  exit 1
}
expect() {  # expect TEXT IN_OUTPUT
  [[ $2 == *"$1"* ]] || fail "expected '$1' in: $2"
}
python=${FINETUNE_PYTHON:-python3}
torch=$("$python" -c 'import importlib.util as u; print(u.find_spec("torch").submodule_search_locations[0])')
wanted=$(sed -n "s/^__version__ = '\([0-9]*\.[0-9]*\).*/\1/p" "$torch/version.py")

if [[ -z ${FINETUNE_WHEEL:-} ]]; then
  FINETUNE_PREBUILT=$FINETUNE_BUILD_DIR "${FINETUNE_PACKAGE_PYTHON:-${FINETUNE_TEST_PYTHON:-$python}}" -m pip wheel --quiet \
    --disable-pip-version-check --no-deps --no-index --no-build-isolation --wheel-dir "$folder/dist" "$root"
  FINETUNE_WHEEL=$(echo "$folder"/dist/finetune_cpp-*.whl)
fi
[[ $FINETUNE_WHEEL == *"+torch$wanted-py3-none-"* ]] || fail "the name $FINETUNE_WHEEL"

site_of() { "$1" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }
# fresh PYTHON NAME: creates an environment with this torch in its own site-packages (hard links if
# possible), and torch's dependencies through a path file.
fresh() {
  local env=$folder/$2 site
  "$1" -m venv "$env"
  site=$(site_of "$env/bin/python")
  cp -al "$torch" "$site/torch" 2>/dev/null || cp -a "$torch" "$site/torch"
  cp -a "$(dirname "$torch")"/torch-*.dist-info "$site/"
  dirname "$torch" >"$site/zz_lent.pth"
  rm -rf "$site"/setuptools "$site"/setuptools-*.dist-info  # older than torch requires
}
install() {
  "$folder/$1/bin/python" -m pip install --quiet --disable-pip-version-check --no-index \
    --find-links "$(dirname "$FINETUNE_WHEEL")" finetune-cpp
}
now() { date +%s.%N; }

tried=0
for version in 3.10 3.11 3.12 3.13 3.14; do
  command -v "python$version" >/dev/null || continue
  "python$version" -c 'import ensurepip, venv' 2>/dev/null || continue
  name=py$version
  fresh "python$version" "$name"
  start=$(now)
  install "$name"
  finetune=$folder/$name/bin/finetune
  "$finetune" config example smoke "$folder/$name-example" >/dev/null || fail "no example"
  "$finetune" train "$folder/$name-example/smoke.yaml" --output_dir "$folder/$name-run" \
    --cache_dir "$folder/$name-cache" >"$folder/log" 2>&1 &
  run=$!
  until grep -q ' loss ' "$folder/log" || ! kill -0 "$run" 2>/dev/null; do sleep 0.05; done
  seconds=$(awk -v a="$start" -v b="$(now)" 'BEGIN { printf "%.1f", b - a }')
  wait "$run" || fail "the smoke run failed: $(tail -n 5 "$folder/log")"
  [[ -f $folder/$name-run/model.safetensors ]] || fail "no model"
  echo "Python $version: $seconds s from the start of pip to the first loss"
  report=$("$finetune" doctor) || [[ $report == *"no device is seen"* ]] || fail "doctor: $report"
  expect "built for torch $wanted" "$report"
  [[ $report == *"/$name/lib/"*"/torch/lib"* ]] || fail "another torch: $report"
  expect "(for torch $wanted)" "$("$finetune" --version)"
  tried=$((tried + 1))
done
((tried)) || fail "no Python with venv was found"

# The libraries that the binary needs, and where it searches them.
installed=$(site_of "$folder/$name/bin/python")/finetune
dynamic=$(readelf -d "$installed/bin/finetune")
# shellcheck disable=SC2016  # $ORIGIN is the loader's
expect 'runpath: [$ORIGIN/../../torch/lib]' "$dynamic"
strange=$(sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' <<<"$dynamic" |
  grep -vxE 'lib(torch|torch_cpu|c10)\.so|libgomp\.so\.1|libstdc\+\+\.so\.6|libgcc_s\.so\.1|lib(m|c|dl|pthread|rt)\.so\.[26]|ld-linux-x86-64\.so\.2' || true)
[[ -z $strange ]] || fail "the binary needs $strange"
if grep -qaF "$FINETUNE_BUILD_DIR" "$installed/bin/finetune"; then fail "the binary names its build folder"; fi

# The man pages, and completions with every key.
share=$folder/$name/share
for file in man/man1/finetune.1 bash-completion/completions/finetune zsh/site-functions/_finetune \
  fish/vendor_completions.d/finetune.fish; do
  grep -q per_device_train_batch_size "$share/$file" || fail "$share/$file"
done
if command -v man >/dev/null; then
  warnings=$(MANWIDTH=100 man --warnings -l "$share/man/man1/finetune.1" 2>&1 >"$folder/page")
  [[ -z $warnings ]] || fail "$warnings"
fi
bash -n "$share/bash-completion/completions/finetune"

# A notebook's cell uses the wheel stored in its folder and compiles nothing.
mkdir -p "$folder/drive/bin"
cp "$FINETUNE_WHEEL" "$folder/drive/bin/"
output=$(env -u FINETUNE_WHEEL CXX=/nonexistent FINETUNE_NO_INSTALL=1 FINETUNE_PYTHON="$python" HOME="$folder" \
  XDG_CACHE_HOME="$folder/cache" "$root/scripts/colab_cell.sh" "$root/configs/smoke.yaml" \
  "$folder/drive" --max_steps 4 2>&1) || fail "colab_cell.sh: $output"
expect "==> using the wheel $folder/drive/bin/" "$output"
[[ -f $folder/drive/runs/smoke/model.safetensors ]] || fail "colab_cell.sh trained nothing"

# The image installs the wheel of its context, although an index has a newer project of that name.
mkdir -p "$folder/index"
"$python" - "$folder/index" <<'EOF'
import sys, zipfile
with zipfile.ZipFile(sys.argv[1] + "/finetune_cpp-99.0-py3-none-any.whl", "w") as wheel:
    info = "finetune_cpp-99.0.dist-info/"
    wheel.writestr(info + "METADATA", "Metadata-Version: 2.1\nName: finetune-cpp\nVersion: 99.0\n")
    wheel.writestr(info + "WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    wheel.writestr(info + "RECORD", "")
EOF
words=$(sed -n "s#^RUN /opt/finetune/bin/pip install --no-cache-dir \(.*\) \\\\#\1#p" "$root/Dockerfile")
words=${words//\/tmp\/wheels/$(dirname "$FINETUNE_WHEEL")}
# shellcheck disable=SC2086  # words of a command, with a pattern
PIP_FIND_LINKS=$folder/index "$folder/$name/bin/python" -m pip install --quiet --disable-pip-version-check --no-index \
  --force-reinstall --no-deps $words
expect "(for torch $wanted)" "$("$finetune" --version)"

# Another torch, then none.
version=$(site_of "$folder/$name/bin/python")/torch/version.py
rm "$version"  # a link to another environment's file
echo "__version__ = '2.10.1'" >"$version"
status=0
output=$("$finetune" doctor 2>&1) || status=$?
((status == 1)) || fail "exit code $status with another torch"
expect "error: this finetune was built for torch $wanted, and " "$output"
expect " is torch 2.10.1; install the wheel of finetune for torch 2.10, or torch $wanted with: " "$output"
(($(wc -l <<<"$output") == 1)) || fail "more than one line: $output"
rm -r "$(dirname "$version")" "$(dirname "$(dirname "$version")")/zz_lent.pth"
output=$("$finetune" train x.yaml 2>&1) && fail "trains without torch"
expect "error: finetune needs torch $wanted, which " "$output"

"$folder/$name/bin/python" -m pip uninstall --quiet --yes finetune-cpp 2>/dev/null
[[ ! -e $installed/bin/finetune && ! -e $share/man/man1/finetune.1 ]] || fail "pip uninstall leaves files"
echo "wheel_test: passed with ${FINETUNE_WHEEL##*/}"
