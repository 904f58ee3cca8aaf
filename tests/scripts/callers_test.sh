#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The check of callers finds a function that nothing calls, and no other.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir -p "$folder/include" "$folder/src"
cat >"$folder/include/a.h" <<'EOF'
[[nodiscard]] int called(int x);  // left_alone() in a comment is no call
[[nodiscard]] std::vector<std::string> left_alone(const std::string& text);
class A {
 public:
  virtual bool is_read() const = 0;
};
EOF
cat >"$folder/src/a.cpp" <<'EOF'
int called(int x) { return x; }
std::vector<std::string> left_alone(const std::string& text) { return {text, "left_alone(*/"}; }
int twice(const A& a) { return a.is_read() ? called(called(1)) : 0; }
EOF
output=$(python3 "$root/scripts/check_callers.py" "$folder") && { echo "nothing was found"; exit 1; }
test "$output" = "include/a.h: nothing in src calls left_alone(): remove it, or name it in UNCALLED of scripts/check_callers.py"
echo 'auto used() { return left_alone("x"); }' >>"$folder/src/a.cpp"
python3 "$root/scripts/check_callers.py" "$folder"
