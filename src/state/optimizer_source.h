// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "finetune/base/file_system.h"
#include "finetune/optim/optimizer.h"
#include "finetune/tensor/tensor.h"

// The optimizer states of one checkpoint in the form of its files. All errors are Error(kData) with
// path, parameter and reason.
namespace finetune {

class OptimizerSource {
 public:
  virtual ~OptimizerSource() = default;
  OptimizerSource(const OptimizerSource&) = delete;
  OptimizerSource& operator=(const OptimizerSource&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }

  // Returns the kind of a slot's state in the file, by the slot's index.
  [[nodiscard]] virtual const OptimizerKind& kind(size_t slot) const = 0;

  // Properties of a slot known before its state is read.
  struct Description {
    bool has_state = false;
    bool is_8bit = false;
    int64_t updates = 0;
  };
  [[nodiscard]] virtual Description describe(size_t slot) const = 0;

  // Reads into the tensors of `target`, which create_state() made for kind(slot), one tensor at a
  // time; compares shape and type first and checks the values. Requires: has_state, and `target` of
  // the same width.
  virtual void read(size_t slot, Optimizer::Slot& target) const = 0;

 protected:
  OptimizerSource(std::string path, const Optimizer& optimizer)
      : path_(std::move(path)), optimizer_(optimizer) {}

  [[nodiscard]] const Optimizer& optimizer() const { return optimizer_; }
  // Returns the parameter of a slot.
  [[nodiscard]] const Parameter& parameter(size_t slot) const;
  [[nodiscard]] const std::string& name(size_t slot) const { return parameter(slot).name(); }
  // Returns the descriptor's tensors for a slot of this width.
  [[nodiscard]] std::vector<StateTensor> tensors(size_t slot, bool is_8bit) const;

  [[noreturn]] void reject(size_t slot, std::string_view state, const std::string& reason) const;
  void check_values(size_t slot, const StateTensor& state, const Tensor& values) const;
  // Checks a count of updates, which a file may contain as any number.
  [[nodiscard]] int64_t checked_updates(size_t slot, double value) const;

 private:
  std::string path_;
  const Optimizer& optimizer_;
};

// Throws Error(kData) "<path>: the state 'exp_avg' of 'w' <reason>".
[[noreturn]] void reject_state(const std::string& path, std::string_view parameter,
                               std::string_view state, const std::string& reason);
// Rejects values that no optimizer can have written: non-finite ones, and negative ones unless
// `is_signed`.
void check_state_values(const std::string& path, std::string_view parameter, std::string_view state,
                        const Tensor& values, bool is_signed = false);

// Returns the options with which a state of this kind is read for a slot of the optimizer.
[[nodiscard]] OptimizerOptions options_for(const Optimizer& optimizer, const Optimizer::Slot& slot,
                                           const OptimizerKind& kind);

// Opens optimizer.pt with torch's, transformers' or bitsandbytes' states. `optimizer` gives
// parameters and groups; its kinds are ignored.
[[nodiscard]] std::unique_ptr<OptimizerSource> open_optimizer_torch(FileSystem& files,
                                                                    const std::string& path,
                                                                    const Optimizer& optimizer);

// Opens optimizer.safetensors; null if it contains only corrections of weights.
[[nodiscard]] std::unique_ptr<OptimizerSource> open_optimizer_safetensors(
    FileSystem& files, const std::string& path, const Optimizer& optimizer);

}  // namespace finetune
