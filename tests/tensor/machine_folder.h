// SPDX-License-Identifier: MIT
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "base/temporary_folder.h"

namespace finetune::testing {

// A folder instead of a machine's root.
class MachineFolder : public ::testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(root() + name).parent_path());
    folder_.write(name, text);
  }
  [[nodiscard]] std::string root() const { return folder_ / ""; }

 private:
  TemporaryFolder folder_;
};

}  // namespace finetune::testing
