// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "data/columns/row_source.h"
#include "finetune/data/sample_stream.h"

namespace finetune {

// The data of a stream, and how samples are made of it.
struct StreamSource {
  std::vector<std::string> files;  // or patterns
  RowOptions rows;                 // all rows, no progress
  nlohmann::ordered_json options;  // everything that samples depend on except the files
  std::optional<int64_t> max_samples;
  std::function<void(const RowBlock&)> on_first_row = {};  // see RowSource::on_first_row()
  // Makes samples of the next rows, a bounded number that depends only on the rows; returns false
  // at the end of the files.
  std::function<bool(RowSource&, TokenContent&)> read;
};

// Throws as expand_files does.
[[nodiscard]] std::shared_ptr<const SampleStream> make_sample_stream(StreamSource source,
                                                                     const StreamOptions& options);

}  // namespace finetune
