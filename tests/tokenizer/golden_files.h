// SPDX-License-Identifier: MIT
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "base/temporary_folder.h"
#include "finetune/base/file_system.h"
#include "finetune/base/json.h"
#include "support/paths.h"

namespace finetune::testing {

using Json = nlohmann::ordered_json;

// Returns a file of tests/fixtures/tokenizer, made by make_goldens.py there.
inline std::string golden_text(const std::string& name) {
  return FileSystem::local().read_all(source_dir() + "/tests/fixtures/tokenizer/" + name);
}
inline Json golden_json(const std::string& name) { return parse_json(golden_text(name), name); }

// Returns base.json with some of its parts replaced.
inline Json changed_base(const Json& changes) {
  Json json = golden_json("base.json");
  for (const auto& [key, value] : changes.items()) json[key] = value;
  return json;
}

}  // namespace finetune::testing
