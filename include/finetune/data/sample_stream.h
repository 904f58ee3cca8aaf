// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <vector>

#include "finetune/data/stream_options.h"
#include "finetune/data/token_dataset.h"

namespace finetune {

// Samples that are read and tokenised on demand, in the order of a shuffle buffer, which is a
// function of (seed, epoch, content of the files). Samples have the same indices as in memory.
// Memory contains the samples of the buffer and those between them in the files. The number of
// samples is known after the first pass over the files.
//
// All members are thread-safe; reading happens in the calling thread. They throw Error(kData) with
// file and line for unusable rows or if a file has changed since the run began, and Error(kIo).
class SampleStream : public SequenceDataset {
 public:
  using Dataset::get;
  // Not supported: use draw().
  [[nodiscard]] Example get(int64_t index, int64_t choice) const override;
  // Returns the number of samples known so far.
  [[nodiscard]] int64_t size() const override = 0;
  [[nodiscard]] int64_t tokens() const override { return 0; }  // unknown

  // Returns the smaller of `count` and the number of samples per epoch; reads as far as needed.
  [[nodiscard]] virtual int64_t reach(int64_t count) const = 0;
  // Returns the number of samples per epoch, once the end of the files was reached.
  [[nodiscard]] virtual std::optional<int64_t> samples_per_epoch() const = 0;

  // Appends the indices of the samples at outputs [begin, end) of an epoch, and returns a dataset
  // with these samples at these indices. Requires: end <= reach(end).
  [[nodiscard]] virtual std::shared_ptr<const Dataset> draw(
      int64_t epoch, int64_t begin, int64_t end, std::vector<int64_t>& numbers) const = 0;
  // Declares that outputs before `position` will not be requested again, except after restore().
  virtual void release(int64_t epoch, int64_t position) const = 0;

  // Returns the file positions of the buffer's samples and of the reader before output `position`.
  [[nodiscard]] virtual nlohmann::ordered_json state(int64_t epoch, int64_t position) const = 0;
  // Restores the result of state() for this output; reads and tokenises only the samples it needs.
  // Throws Error(kData) if `state` does not match the files, and Interrupted.
  virtual void restore(const nlohmann::ordered_json& state, int64_t epoch,
                       int64_t position) const = 0;
};

// Whether samples are read while a run trains, so that their number is unknown.
[[nodiscard]] inline bool is_stream(const Dataset& data) {
  return dynamic_cast<const SampleStream*>(&data) != nullptr;
}

}  // namespace finetune
