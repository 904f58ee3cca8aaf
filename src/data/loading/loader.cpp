// SPDX-License-Identifier: MIT
#include "finetune/data/loader.h"

#include <algorithm>
#include <bit>
#include <optional>
#include <string>
#include <utility>

#include "data/loading/sample_order.h"
#include "data/loading/updates_ahead.h"
#include "finetune/base/error.h"
#include "finetune/base/text.h"
#include "finetune/data/packing_plan.h"
#include "finetune/data/sample_stream.h"
#include "finetune/data/sets_in_turn.h"

namespace finetune {

struct Loader::State {
  std::shared_ptr<const Dataset> dataset;
  std::shared_ptr<const SampleStream> stream;  // the dataset if it is a stream
  std::shared_ptr<const Collator> collator;
  LoaderOptions options;
  std::optional<PackingPlan> packing;
  std::unique_ptr<const SetsInTurn> sets;  // if updates are each of one part of a mixture
  // The order of samples or packed rows; null for a stream and with `sets`.
  std::unique_ptr<const SampleOrder> order;
  int64_t samples_per_epoch = 0;  // unused for a stream

  // Last, so that its threads end before the members they use.
  UpdatesAhead ahead;

  State(std::shared_ptr<const Dataset> samples, std::shared_ptr<const Collator> how,
        const LoaderOptions& chosen, const ShowStep& show)
      : dataset(std::move(samples)),
        stream(std::dynamic_pointer_cast<const SampleStream>(dataset)),
        collator(std::move(how)),
        options(chosen),
        packing(make_packing(*dataset, chosen, show)),
        sets(make_sets()),
        order(make_order()),
        ahead(chosen.workers, 1 + chosen.prefetch,
              {.prepare = [this](PreparedUpdate& update) { prepare(update); },
               .position = [this](const Position& position) { return planned_after(position); }}) {}

  static std::optional<PackingPlan> make_packing(const Dataset& data, const LoaderOptions& chosen,
                                                 const ShowStep& show) {
    if (chosen.packed_length == 0) return std::nullopt;
    return PackingPlan(data,
                       {.capacity = chosen.packed_length,
                        .keeps_order = chosen.sampling == SamplingStrategy::kSequential},
                       show);
  }
  [[nodiscard]] std::unique_ptr<const SetsInTurn> make_sets() const {
    if (options.sets == SetSampling::kNone) return nullptr;
    auto mixed = std::dynamic_pointer_cast<const MixedDataset>(dataset);
    FT_CHECK(mixed != nullptr && !packing, "parts that follow each other");
    return std::make_unique<SetsInTurn>(
        std::move(mixed), options.sets, update_size(), options.seed,
        [this](const Dataset& part) { return order_of(part, part.size()); });
  }
  [[nodiscard]] std::unique_ptr<const SampleOrder> make_order() const {
    return stream || sets ? nullptr : order_of(*dataset, units());
  }
  [[nodiscard]] std::unique_ptr<const SampleOrder> order_of(const Dataset& data,
                                                            int64_t size) const {
    if (options.sampling == SamplingStrategy::kNoDuplicates) {
      return make_order_without_duplicates(data, options.length_group, options.seed);
    }
    return options.sampling == SamplingStrategy::kGroupByLength
               ? make_length_grouped_order(data, options.length_group, options.seed)
               : make_sample_order(size, options.sampling, options.seed);
  }
  // Number of samples or packed rows per epoch.
  [[nodiscard]] int64_t units() const {
    if (sets) return sets->samples_per_epoch();
    return packing ? packing->rows() : dataset->size();
  }
  [[nodiscard]] int64_t update_size() const { return options.batch_size * options.micro_batches; }

  // Returns the multiple to which drop_last truncates.
  [[nodiscard]] int64_t multiple() const {
    if (!options.drop_last) return 1;
    return options.drop_multiple > 0 ? options.drop_multiple : options.batch_size;
  }
  // Returns the smaller of `count` and the samples per epoch. A stream reads as far as needed.
  [[nodiscard]] int64_t available(int64_t count) const {
    if (!stream) return std::min(count, samples_per_epoch);
    const int64_t whole = (count + multiple() - 1) / multiple() * multiple();
    return std::min(count, stream->reach(whole) / multiple() * multiple());
  }

  [[nodiscard]] Position normalised(const Position& position) const {
    FT_CHECK(position.epoch >= 0 && position.sample >= 0, "a position is not negative");
    if (position.sample < available(position.sample + 1)) return position;
    return {.epoch = position.epoch + 1, .sample = 0};
  }

  [[nodiscard]] Position after(const Position& position) const {
    const Position start = normalised(position);
    return normalised({.epoch = start.epoch, .sample = start.sample + update_size()});
  }
  // If the stream cannot be read, the take() that needs the samples throws.
  [[nodiscard]] Position planned_after(const Position& position) const {
    try {
      return after(position);
    } catch (const Error&) {
      return {.epoch = position.epoch, .sample = position.sample + update_size()};
    }
  }

  // Requires: a normalised position.
  void prepare(PreparedUpdate& update) const {
    const Position& position = update.position;
    update.count = 0;
    const int64_t end = available(position.sample + update_size());
    // The share of an update that is not an epoch's last.
    const int64_t share = update_size() / options.parts;
    const int64_t first = position.sample + options.part * share;
    int64_t index = first_position(update, std::min(first, end));
    for (int64_t begin = first; begin < std::min(end, first + share); begin += options.batch_size) {
      const int64_t after = std::min(end, begin + options.batch_size);
      const std::shared_ptr<const Dataset> samples = find_keys(update, begin, after);
      Batch& batch = update.add();
      collator->collate(*samples, update.keys, batch);
      if (sets) batch.set = sets->part_at(position.epoch, begin);
      batch.first_position = index;
      index += batch.rows;
      batch.full_rows = options.batch_size * batch.choices;
      if (packing) {  // a row for each sample: any number
        batch.packed_rows = after - begin;
        batch.full_rows = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(batch.rows)));
      }
    }
    if (options.workers > 0) read_ahead(position);
  }

  // Reads ahead, so that planning further updates in the training thread need not read.
  void read_ahead(const Position& position) const {
    if (!stream) return;
    try {
      static_cast<void>(available(position.sample + (options.prefetch + 3) * update_size()));
    } catch (const Error&) {  // concerns a later update
    }
  }

  // Index of row `first` of the update in its effective batch.
  [[nodiscard]] int64_t first_position(PreparedUpdate& update, int64_t first) const {
    const int64_t begin = update.position.sample;
    if (!packing) {
      const auto& samples = sets ? sets->data_at(update.position.epoch, begin) : dataset;
      return (first - begin) * samples->choices();
    }
    static_cast<void>(find_keys(update, begin, first));
    return std::ssize(update.keys);
  }

  // Returns the dataset that contains the samples.
  [[nodiscard]] std::shared_ptr<const Dataset> find_keys(PreparedUpdate& update, int64_t begin,
                                                         int64_t end) const {
    const int64_t epoch = update.position.epoch;
    std::shared_ptr<const Dataset> samples = dataset;
    update.samples.clear();
    if (stream) {
      samples = stream->draw(epoch, begin, end, update.samples);
    } else if (sets) {
      samples = sets->data_at(epoch, begin);
      sets->append(epoch, begin, end, update.samples);
    } else {
      order->append(epoch, begin, end, update.samples);
    }
    if (packing) {
      update.rows.swap(update.samples);
      update.samples.clear();
      for (const int64_t row : update.rows) packing->append(row, update.samples, update.group);
    }
    update.keys.clear();
    for (const int64_t sample : update.samples) {
      update.keys.push_back({.index = sample, .epoch = epoch});
    }
    return samples;
  }
};

Loader::Loader(std::shared_ptr<const Dataset> dataset, std::shared_ptr<const Collator> collator,
               const LoaderOptions& options, const ShowStep& show) {
  FT_CHECK(options.batch_size >= 1 && options.micro_batches >= 1, "an update has rows");
  FT_CHECK(options.parts >= 1 && options.micro_batches % options.parts == 0 && options.part >= 0 &&
               options.part < options.parts,
           "each part of an update has as many micro-batches");
  FT_CHECK(options.workers >= 0 && options.prefetch >= 0, "no negative number of workers");
  FT_CHECK(dataset->size() >= 1, "a loader needs samples");
  state_ = std::make_unique<State>(std::move(dataset), std::move(collator), options, show);
  const int64_t size = state_->units();
  const int64_t multiple = state_->multiple();
  state_->samples_per_epoch = size / multiple * multiple;
  if (state_->available(1) == 0) {
    throw Error(ErrorKind::kConfig,
                format_text("dataloader_drop_last leaves nothing of {}{} with batches of {}; lower "
                            "per_device_train_batch_size or set dataloader_drop_last: false",
                            size, state_->packing ? " packed rows" : " samples", multiple));
  }
}

Loader::~Loader() = default;

int64_t Loader::samples_per_epoch() const {
  if (!state_->stream) return state_->samples_per_epoch;
  return state_->stream->samples_per_epoch().value_or(0) / state_->multiple() * state_->multiple();
}

int64_t Loader::updates_per_epoch() const {
  return (samples_per_epoch() + state_->update_size() - 1) / state_->update_size();
}

std::span<const Batch> Loader::take(const Position& position) {
  const Position start = state_->normalised(position);
  if (state_->stream) state_->stream->release(start.epoch, start.sample);
  return state_->ahead.take(start);
}

Position Loader::after(const Position& position) const { return state_->planned_after(position); }

EvaluationLoader::EvaluationLoader(std::shared_ptr<const Dataset> dataset,
                                   std::shared_ptr<const Collator> collator, int64_t batch_size,
                                   bool drop_last)
    : dataset_(std::move(dataset)),
      collator_(std::move(collator)),
      batch_size_(batch_size),
      drop_last_(drop_last) {
  FT_CHECK(batch_size >= 1, "a batch has rows");
}

int64_t EvaluationLoader::batches() const {
  const int64_t extra = drop_last_ ? 0 : batch_size_ - 1;
  return (dataset_->size() + extra) / batch_size_;
}

void EvaluationLoader::get(int64_t index, Batch& batch) {
  FT_CHECK(index >= 0 && index < batches(), "batch index out of range");
  keys_.clear();
  const int64_t end = std::min(dataset_->size(), (index + 1) * batch_size_);
  for (int64_t sample = index * batch_size_; sample < end; ++sample) {
    keys_.push_back({.index = sample, .epoch = SampleKey::kEvaluation});
  }
  collator_->collate(*dataset_, keys_, batch);
  batch.full_rows = batch_size_ * batch.choices;
}

}  // namespace finetune
