// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "finetune/data/batch.h"
#include "finetune/data/dataset.h"
#include "finetune/data/long_step.h"

namespace finetune {

// A run's position in its data: the first `sample` samples (with packing: rows) of epoch `epoch`
// were used. Counting samples lets batch size and number of processes change between sessions.
struct Position {
  int64_t epoch = 0;
  int64_t sample = 0;
  friend bool operator==(const Position&, const Position&) = default;
};

// One sample to collate: its index in the dataset and the epoch. With kEvaluation as the epoch,
// masks depend only on the sample.
struct SampleKey {
  static constexpr int64_t kEvaluation = -1;
  int64_t index = 0;
  int64_t epoch = 0;
};

// Turns samples into a batch. Pure: the same keys give the same batch on any thread.
class Collator {
 public:
  virtual ~Collator() = default;
  // Overwrites `batch`, reusing its buffers.
  virtual void collate(const Dataset& dataset, std::span<const SampleKey> samples,
                       Batch& batch) const = 0;
  [[nodiscard]] Batch collate(const Dataset& dataset, std::span<const SampleKey> samples) const {
    Batch batch;
    collate(dataset, samples, batch);
    return batch;
  }
};

enum class SamplingStrategy { kRandom, kSequential, kGroupByLength, kNoDuplicates };

// How updates of one part each of a MixedDataset follow each other (sentence-transformers'
// MultiDatasetBatchSamplers).
enum class SetSampling {
  kNone,          // an update has samples of all parts
  kProportional,  // each part has as many updates as it fills, in random order
  kRoundRobin,    // the parts in turn, until one has no further samples
};

struct LoaderOptions {
  int64_t batch_size = 8;     // rows of a micro-batch; without packing a row is a sample
  int64_t micro_batches = 1;  // of an update (gradient accumulation), in all processes
  // take() prepares part `part` of `parts` equal parts of an update's micro-batches: the share of
  // one process.
  int64_t part = 0;
  int64_t parts = 1;
  SamplingStrategy sampling = SamplingStrategy::kRandom;
  // kGroupByLength: number of samples sorted together; kNoDuplicates: samples without the same
  // text.
  int64_t length_group = 1;
  SetSampling sets = SetSampling::kNone;  // otherwise the dataset is a MixedDataset
  int64_t packed_length = 0;  // maximum tokens of a row shared by several samples; 0: no packing
  uint64_t seed = 42;
  bool drop_last = false;     // leave out an epoch's last, incomplete micro-batch
  int64_t drop_multiple = 0;  // the multiple to which drop_last truncates; 0: batch_size
  int64_t workers = 0;        // threads that prepare updates ahead; 0: in the caller's thread
  int64_t prefetch = 2;       // maximum number of updates prepared ahead
};

// The training data as a function of the position. An update takes the next batch_size x
// micro_batches samples of the epoch's order; an epoch's last update may be smaller, and no update
// spans two epochs. With packing, the rows of a PackingPlan are counted and ordered; a batch has
// one row for each sample in them, and dropout's indices count samples. The result of take()
// depends only on the position; workers only make it available earlier. take() throws a worker's
// error when its update is requested. A position at or after the end of an epoch (drop_last or the
// batch size may have changed since it was stored) means the start of the next. take() is called
// from one thread at a time.
class Loader {
 public:
  // Throws Error(kConfig) if drop_last leaves no sample; with packing also Interrupted.
  Loader(std::shared_ptr<const Dataset> dataset, std::shared_ptr<const Collator> collator,
         const LoaderOptions& options, const ShowStep& show = {});
  ~Loader();  // waits for updates in preparation and discards those still queued
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  // Samples, or with packing rows, without those that drop_last leaves out.
  [[nodiscard]] int64_t samples_per_epoch() const;
  [[nodiscard]] int64_t updates_per_epoch() const;
  // Returns the update at `position`. The loader owns the batches and reuses their memory at the
  // next take(): in the steady state nothing is allocated.
  [[nodiscard]] std::span<const Batch> take(const Position& position);
  // The position after the update at `position`; {epoch + 1, 0} at an epoch's end.
  [[nodiscard]] Position after(const Position& position) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Evaluation: every sample once, in order. As in transformers, drop_last leaves out a last,
// incomplete batch in evaluation too.
class EvaluationLoader {
 public:
  EvaluationLoader(std::shared_ptr<const Dataset> dataset, std::shared_ptr<const Collator> collator,
                   int64_t batch_size, bool drop_last = false);

  [[nodiscard]] int64_t batches() const;
  [[nodiscard]] int64_t samples() const { return dataset_->size(); }
  // Overwrites `batch`, reusing its buffers.
  void get(int64_t index, Batch& batch);
  [[nodiscard]] Batch get(int64_t index) {
    Batch batch;
    get(index, batch);
    return batch;
  }

 private:
  std::shared_ptr<const Dataset> dataset_;
  std::shared_ptr<const Collator> collator_;
  int64_t batch_size_;
  bool drop_last_;
  std::vector<SampleKey> keys_;
};

}  // namespace finetune
