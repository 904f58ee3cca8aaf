// SPDX-License-Identifier: MIT
#include "finetune/data/mixed_dataset.h"

#include <algorithm>
#include <cmath>

#include "finetune/base/error.h"
#include "finetune/base/hash.h"
#include "finetune/base/text.h"

namespace finetune {

MixedDataset::MixedDataset(std::vector<MixturePart> parts, const std::string& key,
                           const std::string& also)
    : parts_(std::move(parts)) {
  FT_CHECK(!parts_.empty(), "a mixture has parts");
  double longest = 0;  // samples per unit of weight, so that each part is seen at least once
  for (const MixturePart& part : parts_) {
    FT_CHECK(part.weight > 0 && part.data->size() > 0,
             "parts of a mixture have weight and samples");
    choices_ = std::max(choices_, part.data->choices());
    longest = std::max(longest, static_cast<double>(part.data->size()) / part.weight);
  }
  Hasher hasher;
  for (const MixturePart& part : parts_) {
    const double samples = std::round(longest * part.weight);
    if (!(samples + static_cast<double>(begins_.back()) < static_cast<double>(kMaxSize))) {
      throw Error(
          ErrorKind::kConfig,
          key +
              ": the weights differ so much that an epoch which visits every sample once would "
              "have more than 2^40 samples; make them more alike");
    }
    // Rounding must not drop a sample.
    const int64_t share = std::max(static_cast<int64_t>(samples), part.data->size());
    begins_.push_back(begins_.back() + share);
    hasher.update(format_text("{} {}\n", part.data->fingerprint(), share));
  }
  hasher.update(also);
  fingerprint_ = hasher.hex();
}

MixedDataset::Position MixedDataset::find(int64_t index) const {
  FT_CHECK(index >= 0 && index < size(), "a sample of the mixture");
  const auto above = std::upper_bound(begins_.begin(), begins_.end(), index);
  const auto part = static_cast<size_t>(above - begins_.begin()) - 1;
  const Dataset& data = *parts_[part].data;
  const int64_t position = index - begins_[part];
  const int64_t left = share(part) % data.size();  // samples of the last pass
  if (position < share(part) - left) return {data, position % data.size()};
  __extension__ using Wide = __int128;  // product of two sizes of up to 2^40
  const Wide spread = static_cast<Wide>(position % data.size()) * data.size() / left;
  return {data, static_cast<int64_t>(spread)};
}

int64_t MixedDataset::choices_of(int64_t index) const { return find(index).data.choices(); }

Example MixedDataset::get(int64_t index, int64_t choice) const {
  const Position position = find(index);
  return position.data.get(position.index, choice);
}

int64_t MixedDataset::length(int64_t index, int64_t choice) const {
  const Position position = find(index);
  return position.data.length(position.index, choice);
}

std::optional<DatasetExtent> MixedDataset::extent() const {
  DatasetExtent all;
  for (const MixturePart& part : parts_) {
    const std::optional<DatasetExtent> extent = part.data->extent();
    if (!extent) return std::nullopt;
    all.longest = std::max(all.longest, extent->longest);
    all.bytes += extent->bytes;
    all.token_types = std::max(all.token_types, extent->token_types);
  }
  return all;
}

}  // namespace finetune
