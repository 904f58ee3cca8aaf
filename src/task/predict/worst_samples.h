// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "finetune/base/file_system.h"
#include "finetune/base/model_files.h"

namespace finetune {

// The samples whose labels a model predicts worst, for `finetune report`. Keeps a bounded number of
// them, so that it can be fed every sample of a file.
class WorstSamples {
 public:
  using Json = nlohmann::ordered_json;

  // `measure` names the score: "probability" (of the right label), "loss" (mean over the targets),
  // "error" (absolute) or "f1" (in percent).
  explicit WorstSamples(std::string measure) : measure_(std::move(measure)) {}

  // How bad a prediction is, above all by the first; NaN is worst. Of equal ones the sample that
  // was added first is worse.
  struct Badness {
    double first = 0.0;
    double second = 0.0;
  };
  // `describe` is called for samples that are among the worst so far; its members follow "sample"
  // and "score". A score that is not finite is written as null.
  void add(int64_t sample, double score, const Badness& badness,
           const std::function<Json()>& describe);
  [[nodiscard]] bool empty() const { return samples_ == 0; }

  // {"split", "measure", "samples", "worst": [{"sample", "score", ...}, ...]}, worst first, and the
  // members of the object `more`. Writes nothing where there is nothing. Throws Error(kIo).
  void write(FileSystem& files, const std::string& output_dir, const std::string& split,
             const Json& more = Json::object()) const;

 private:
  struct Entry {
    Badness badness;
    Json json;
  };

  std::string measure_;
  int64_t samples_ = 0;
  std::vector<Entry> worst_;  // worst first
};

}  // namespace finetune
