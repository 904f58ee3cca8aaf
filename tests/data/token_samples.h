// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "data/byte_tokenizer.h"
#include "finetune/data/token_dataset.h"

namespace finetune::testing {

// Returns lengths from 1 to 97 in no particular order.
inline std::vector<int64_t> uneven_lengths(int64_t samples) {
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < samples; ++i) lengths.push_back(1 + i * i * 31 % 97);
  return lengths;
}

// Makes samples of these lengths; each repeats one byte.
inline std::shared_ptr<const TokenDataset> samples_of_lengths(const std::vector<int64_t>& lengths) {
  TokenContent content;
  for (size_t i = 0; i < lengths.size(); ++i) {
    content.ids.insert(content.ids.end(), static_cast<size_t>(lengths[i]),
                       ByteTokenizer::kFirstByte + static_cast<int32_t>(i % 200));
    content.offsets.push_back(static_cast<int64_t>(content.ids.size()));
  }
  return std::make_shared<const TokenDataset>(std::move(content));
}

}  // namespace finetune::testing
