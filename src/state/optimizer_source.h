// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "finetune/base/file_system.h"
#include "finetune/optim/optimizer.h"
#include "finetune/tensor/tensor.h"

// The optimizer's states of one checkpoint as its files have them. All errors are Error(kData) with
// path, parameter and reason.
namespace finetune {

class OptimizerSource {
 public:
  virtual ~OptimizerSource() = default;
  OptimizerSource(const OptimizerSource&) = delete;
  OptimizerSource& operator=(const OptimizerSource&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] const std::string& kind() const { return kind_; }

  // What is known of a slot, by its place, before its state is read.
  struct Description {
    bool has_state = false;
    bool is_8bit = false;
    int64_t updates = 0;
  };
  [[nodiscard]] virtual Description describe(size_t slot) const = 0;

  // Reads into the tensors of `target`, which create_state() made for an optimizer of this kind: a
  // tensor at a time, its shape and type compared first and its values checked. Requires:
  // has_state, and `target` of that width.
  virtual void read(size_t slot, Optimizer::Slot& target) const = 0;

 protected:
  OptimizerSource(std::string path, std::string kind)
      : path_(std::move(path)), kind_(std::move(kind)) {}

 private:
  std::string path_;
  std::string kind_;
};

// optimizer.pt: torch's, transformers' and bitsandbytes' states. `optimizer` gives parameters and
// groups, its kind does not matter.
[[nodiscard]] std::unique_ptr<OptimizerSource> open_optimizer_torch(FileSystem& files,
                                                                    const std::string& path,
                                                                    const Optimizer& optimizer);

// optimizer.safetensors; nothing where it holds corrections of weights alone.
[[nodiscard]] std::unique_ptr<OptimizerSource> open_optimizer_safetensors(
    FileSystem& files, const std::string& path, const Optimizer& optimizer);

// "<path>: the state 'exp_avg' of 'w' <reason>".
[[noreturn]] void reject_state(const std::string& path, std::string_view parameter,
                               std::string_view state, const std::string& reason);
// What no optimizer can have written: negative or missing numbers among second moments, scales
// that are not finite.
void check_state_values(const std::string& path, std::string_view parameter,
                        const std::string& state, const Tensor& values);
// A count of updates that a file holds, as any number.
[[nodiscard]] int64_t checked_updates(const std::string& path, std::string_view parameter,
                                      double value);

}  // namespace finetune
