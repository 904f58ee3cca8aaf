// SPDX-License-Identifier: MIT
// Asks torch's dispatcher, without a GPU, whether every operator of a list (operators.txt) has a
// CUDA kernel. Exits with 1 and prints the operators without one.
#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <fstream>
#include <iostream>
#include <string>

int main(int /*count*/, char** arguments) {
  std::ifstream list(arguments[1]);
  int operators = 0;
  int missing = 0;
  for (std::string line; std::getline(list, line); ++operators) {
    line.resize(std::min(line.size(), line.find(' ')));  // without types
    const size_t dot = line.find('.');
    const std::string overload = dot == std::string::npos ? "" : line.substr(dot + 1);
    const auto found = c10::Dispatcher::singleton().findSchema({line.substr(0, dot), overload});
    if (found && found->hasComputedKernelForDispatchKey(c10::DispatchKey::CUDA)) continue;
    ++missing;
    std::cout << line << ": " << (found ? "no CUDA kernel" : "no such operator") << "\n";
  }
  std::cout << operators << " operators, " << missing << " without a CUDA kernel\n";
  return operators > 0 && missing == 0 ? 0 : 1;
}
