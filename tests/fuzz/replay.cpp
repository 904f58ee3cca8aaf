// SPDX-License-Identifier: MIT
// Replaces libFuzzer where it is missing: runs the fuzz target on every file on the command line
// (folders are expanded), also truncated at several lengths. A crash fails the test.
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

void replay(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(stream), {}};
  constexpr std::size_t kCuts = 16;
  for (std::size_t cut = 0; cut <= kCuts; ++cut) {
    const std::size_t size = bytes.size() - bytes.size() * cut / kCuts;
    // A buffer of exactly this size, so that a sanitizer sees a read beyond its end.
    const std::vector<std::uint8_t> input(bytes.begin(),
                                          bytes.begin() + static_cast<std::ptrdiff_t>(size));
    LLVMFuzzerTestOneInput(input.data(), input.size());
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::size_t replayed = 0;
  for (int i = 1; i < argc; ++i) {
    const std::filesystem::path path = argv[i];
    if (std::filesystem::is_regular_file(path)) {
      replay(path);
      ++replayed;
    } else {
      for (const auto& entry : std::filesystem::directory_iterator(path)) {
        replay(entry.path());
        ++replayed;
      }
    }
  }
  std::cout << replayed << " inputs replayed\n";
  return replayed > 0 ? 0 : 1;
}
