// SPDX-License-Identifier: MIT
// What an update allocates is measured by a dry run of it (dry_update.h); here weights, states and
// what no dry run sees are added.
#include "finetune/plan/memory_plan.h"

#include <c10/util/accumulate.h>

#include <algorithm>
#include <cmath>

#include "finetune/base/error.h"
#include "finetune/distributed/owned_tensors.h"
#include "finetune/distributed/shard_sum.h"
#include "finetune/kernels/dry_device.h"
#include "finetune/model/parameter_shapes.h"
#include "finetune/optim/optimizer_kind.h"
#include "finetune/params/gradients.h"
#include "plan/dry_update.h"

namespace finetune {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
// Fraction of temporary memory lost to fragmentation; measured.
constexpr double kHoles = 0.02;

int64_t count_of(const std::vector<int64_t>& sizes) { return c10::multiply_integers(sizes); }

class Prediction {
 public:
  Prediction(const MemoryWorkload& workload, const MemoryChoices& choices)
      : work_(workload),
        choices_(choices),
        shapes_(parameter_shapes(workload.model, workload.head, workload.freeze,
                                 sharding_of(workload))) {
    for (const ParameterShape& shape : shapes_) {
      largest_ = std::max(largest_, shape.count());
      if (shape.trains) trained_ += count_of(shape.own_sizes());
    }
  }

  [[nodiscard]] MemoryParts parts() const {
    const DryUpdate dry = dry_update(work_, choices_, shards_at_once());
    // On a device program and driver context are not counted: its free memory was read when both
    // were loaded.
    MemoryParts parts{.program = work_.is_device ? 0 : work_.program, .gradients = dry.gradients};
    parts.data = work_.is_device ? 0 : work_.data;
    for (const ParameterShape& shape : shapes_) parts.weights += weight_bytes(shape);
    parts.states = states();
    const int64_t others = shards_at_once() * dry.others;
    const int64_t last_gradients = choices_.optimizer_in_backward ? 0 : gradient_bytes();
    const int64_t kept_gradients = dry.keeps_gradients ? gradient_bytes() : 0;
    const int64_t updates = last_gradients + update();
    const int64_t evaluates = kept_gradients + dry.evaluation;
    int64_t temporaries = 0;
    if (dry.gradients + others >= std::max(updates, evaluates)) {
      parts.activations = std::min(others, shards_at_once() * dry.kept);
      parts.head = std::min(others - parts.activations, shards_at_once() * dry.head);
      temporaries = others - parts.activations - parts.head;
    } else {  // outside of forward and backward passes
      parts.gradients = updates > evaluates ? last_gradients : kept_gradients;
      temporaries = updates > evaluates ? update() : dry.evaluation;
    }
    parts.gradients += (gradient_copies() - 1) * gradient_bytes();
    parts.temporaries = temporaries + slack(parts.activations + parts.head + temporaries);
    parts.temporaries += work_.workspace;
    if (work_.compiles) parts.temporaries += 4 * largest_;
    if (work_.is_device) {
      parts.host = host();
    } else {
      parts.temporaries += std::max<int64_t>(0, work_.start - parts.peak());
    }
    return parts;
  }

 private:
  // Of all trained parameters.
  [[nodiscard]] int64_t gradient_bytes() const { return bytes_of(choices_.gradients) * trained_; }

  // Bytes of a parameter's values.
  [[nodiscard]] int64_t weight_bytes(const ParameterShape& shape) const {
    const WeightFormat format =
        shape.is_base ? work_.base.of(shape.name, shape.role) : choices_.weights;
    const auto count = static_cast<double>(count_of(shape.own_sizes()));
    return static_cast<int64_t>(count * traits_of(format).bytes);
  }

  // Bytes of all states; with sharded states, of the rank that has the most.
  [[nodiscard]] int64_t states() const {
    const int64_t processes = work_.zero_stage == 1 ? work_.processes : 1;
    std::vector<int64_t> bytes;
    std::vector<int64_t> with_weights;
    const OptimizerOptions options = {.kind = choices_.optimizer.kind,
                                      .arguments = choices_.optimizer.arguments};
    for (const ParameterShape& shape : shapes_) {
      bytes.push_back(shape.trains ? state_bytes(options, shape.role, shape.own_sizes()) : 0);
      with_weights.push_back(bytes.back() + weight_bytes(shape));
    }
    const std::vector<int64_t> owners = balanced_owners(with_weights, processes);
    std::vector<int64_t> had(static_cast<size_t>(processes), 0);
    for (size_t i = 0; i < bytes.size(); ++i) had[static_cast<size_t>(owners[i])] += bytes[i];
    return *std::ranges::max_element(had);
  }
  // Number of logical shards of a process.
  [[nodiscard]] int64_t shards() const { return work_.effective_batch / choices_.micro_batch; }
  [[nodiscard]] int64_t shards_at_once() const {
    if (!work_.sums_shards) return 1;
    return std::max<int64_t>(1, std::min(work_.batches_at_once, shards()));
  }
  // Number of gradient copies: partial sums of logical shards that a process keeps, and the
  // gradients that are computed at the same time or into which they are summed.
  [[nodiscard]] int64_t gradient_copies() const {
    if (!work_.sums_shards || shards() * work_.processes == 1) return 1;
    int64_t most = 1;
    if (work_.zero_stage > 1) {  // of all ranks' shards, and of the values of one rank
      for (int64_t done = 1; done <= shards(); ++done) {
        int64_t sums = 0;
        for (int64_t rank = 0; rank < work_.processes; ++rank) {
          const auto own = ShardSum::subtrees({.first = rank * shards(), .count = done});
          sums += static_cast<int64_t>(own.size());
        }
        most = std::max(most, done == shards() && shards() == 1 ? 1 : sums);
      }
      return most;
    }
    for (int64_t rank = 0; rank < work_.processes; ++rank) {
      for (int64_t done = 0; done <= shards(); done += shards_at_once()) {
        const auto sums = ShardSum::subtrees({.first = rank * shards(), .count = done}).size();
        const int64_t beside = std::clamp<int64_t>(shards() - done, 1, shards_at_once());
        most = std::max(most, static_cast<int64_t>(sums) + beside);
      }
      const auto all = ShardSum::subtrees({.first = rank * shards(), .count = shards()}).size();
      most = std::max(most, static_cast<int64_t>(all) + 1);
    }
    return most;
  }

  // Update in chunks: gradient, weight, two moments. On a device AdamW in float32 is one call
  // without temporary memory; other formats need rounding and codes (measured, in bytes per value).
  [[nodiscard]] int64_t update() const {
    if (!work_.is_device) return int64_t{4} * 4 * kernels::chunk_values(kernels::KernelTable::kCpu);
    if (work_.has_kernels) return 0;  // lists of parameters, in registers
    const bool is_wide = choices_.weights == WeightFormat::kFloat32 &&
                         choices_.gradients == GradientFormat::kFloat32;
    if (is_wide && choices_.optimizer.kind == "adamw") return 0;
    const int64_t bytes = choices_.weights == WeightFormat::kFloat32 ? 20 : 66;
    return bytes * std::min(largest_, kernels::chunk_values(kernels::KernelTable::kPlain));
  }

  // Fragmentation of the pool of large blocks, small tensors, and buffers of batches, which are in
  // host memory.
  [[nodiscard]] int64_t slack(int64_t bytes) const {
    if (work_.has_kernels) return 0;  // few and large tensors: what is allocated is counted
    if (!work_.is_device && shards_at_once() == 1) return 4 * kMiB;
    const auto holes = static_cast<int64_t>(kHoles * static_cast<double>(bytes));
    return holes + (work_.is_device ? 0 : 4 * kMiB);
  }

  // Host memory when training on a device: one weight tensor being copied there, and the buffer of
  // a save.
  [[nodiscard]] int64_t host() const {
    const ActivationCheckpointing& again = choices_.checkpointing;
    const int64_t tokens = choices_.micro_batch * work_.choices * work_.length;
    const int64_t groups =
        again.group() == 0 ? 0
                           : (work_.model.num_hidden_layers + again.group() - 1) / again.group();
    const int64_t element = choices_.precision == Precision::kFloat32 ? 4 : 2;
    const int64_t offloaded =
        again.offload ? groups * tokens * work_.model.hidden_size * element : 0;
    return work_.program + work_.data + int64_t{2} * 4 * largest_ + offloaded;
  }

  const MemoryWorkload& work_;
  const MemoryChoices& choices_;
  std::vector<ParameterShape> shapes_;
  int64_t trained_ = 0;
  int64_t largest_ = 0;
};

}  // namespace

ShardingOptions sharding_of(const MemoryWorkload& workload) {
  if (workload.zero_stage < 2) return {};
  return {.division = {.rank = 0, .ranks = workload.processes},
          .divides_frozen = workload.zero_stage == 3};
}

int64_t MemoryParts::peak() const {
  return program + data + weights + gradients + states + activations + head + temporaries;
}

int64_t largest_batches_at_once(MemoryWorkload workload, const MemoryChoices& choices,
                                int64_t bytes) {
  const auto most = static_cast<double>(bytes) / (1.0 + kMemoryMargin);
  const auto fits = [&](int64_t count) {
    workload.batches_at_once = count;
    return static_cast<double>(predict_memory(workload, choices).peak()) <= most;
  };
  int64_t fitting = 1;
  int64_t beyond = std::max<int64_t>(1, workload.threads) + 1;
  while (beyond - fitting > 1) {
    const int64_t middle = (fitting + beyond) / 2;
    (fits(middle) ? fitting : beyond) = middle;
  }
  return fitting;
}

MemoryParts predict_memory(const MemoryWorkload& workload, const MemoryChoices& choices) {
  FT_CHECK(choices.micro_batch > 0 && workload.length > 0, "a batch without tokens");
  if (choices.four_bits) {
    MemoryWorkload quantized = workload;
    quantized.base.matrices = workload.four_bits;
    return Prediction(quantized, choices).parts();
  }
  return Prediction(workload, choices).parts();
}

int64_t largest_micro_batch(const MemoryWorkload& workload, MemoryChoices choices, int64_t bytes) {
  const auto fits = [&](int64_t size) {
    choices.micro_batch = size;
    return predict_memory(workload, choices).peak() <= bytes;
  };
  int64_t fitting = 0;
  int64_t beyond = 1;
  while (beyond < (1 << 20) && fits(beyond)) {
    fitting = beyond;
    beyond *= 2;
  }
  while (beyond - fitting > 1) {
    const int64_t middle = (fitting + beyond) / 2;
    (fits(middle) ? fitting : beyond) = middle;
  }
  return fitting;
}

std::vector<int64_t> longest_rows(MemoryWorkload workload, MemoryChoices choices,
                                  const std::vector<int64_t>& bytes) {
  choices.micro_batch = 1;
  workload.eval_batch = std::min<int64_t>(workload.eval_batch, 1);
  const int64_t most = workload.model.max_length();
  std::vector<int64_t> longest(bytes.size());
  for (int64_t power = std::min<int64_t>(128, most); power < 2 * most; power *= 2) {
    for (const int64_t length : {power, power + power / 2}) {
      workload.length = std::min(length, most);
      const int64_t peak = predict_memory(workload, choices).peak();
      bool fits_any = false;
      for (size_t i = 0; i < bytes.size(); ++i) {
        if (peak > bytes[i]) continue;
        longest[i] = workload.length;
        fits_any = true;
      }
      if (!fits_any || workload.length == most) return longest;
    }
  }
  return longest;
}

std::vector<std::pair<std::string, int64_t>> named_parts(const MemoryParts& parts) {
  return {{"weights", parts.weights},
          {"gradients", parts.gradients},
          {"optimizer states", parts.states},
          {"activations", parts.activations},
          {"head", parts.head},
          {"temporaries", parts.temporaries},
          {"data", parts.data},
          {"libtorch and program", parts.program}};
}

}  // namespace finetune
