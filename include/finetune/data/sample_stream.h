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
// function of (seed, epoch, content of the files). Samples have the indices that they would have in
// memory. Memory contains the samples of the buffer and those between them in the files. The number
// of samples is known after the first pass over the files.
//
// All members may be called from several threads at once; reading happens in the calling thread.
// They throw Error(kData) with file and line for rows that cannot be used and where a file has
// changed since the run began, and Error(kIo).
class SampleStream : public SequenceDataset {
 public:
  using Dataset::get;
  // Not possible: draw() gives samples.
  [[nodiscard]] Example get(int64_t index, int64_t choice) const override;
  // Those that are known to exist.
  [[nodiscard]] int64_t size() const override = 0;
  [[nodiscard]] int64_t tokens() const override { return 0; }  // not known

  // The smaller one of `count` and the number of samples of an epoch; reads on as far as needed.
  [[nodiscard]] virtual int64_t reach(int64_t count) const = 0;
  // Samples of an epoch, once the end of the files was seen.
  [[nodiscard]] virtual std::optional<int64_t> samples_per_epoch() const = 0;

  // Appends the numbers of the samples that are the outputs [begin, end) of an epoch, and returns a
  // dataset that holds these samples under these numbers. Requires: end <= reach(end).
  [[nodiscard]] virtual std::shared_ptr<const Dataset> draw(
      int64_t epoch, int64_t begin, int64_t end, std::vector<int64_t>& numbers) const = 0;
  // Outputs before `place` will not be requested again, except after restore().
  virtual void release(int64_t epoch, int64_t place) const = 0;

  // File positions of the buffer's samples and of the reader before output `place`.
  [[nodiscard]] virtual nlohmann::ordered_json state(int64_t epoch, int64_t place) const = 0;
  // Restores what state() returned for this output, and reads and tokenises only the samples that
  // it needs. Throws Error(kData) if `state` is not consistent with the files, and Interrupted.
  virtual void restore(const nlohmann::ordered_json& state, int64_t epoch, int64_t place) const = 0;
};

}  // namespace finetune
