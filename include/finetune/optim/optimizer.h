// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "finetune/kernels/parameter_store.h"

namespace finetune {

struct OptimizerOptions {
  std::string kind = "adamw";  // one of optimizer_kinds()
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.0;  // of the parameters that decay
  double momentum = 0.0;      // sgd
  bool nesterov = false;      // sgd
  // adamw_8bit: tensors below this many values, and embeddings unless asked for, stay at 32 bits.
  int64_t min_8bit_size = 4096;
  bool embeddings_in_8bit = false;
  uint64_t seed = 0;  // of stochastic rounding
};

// Adam's moments in float32, of the parameter's shape: what a state is changed to another kind or
// format through.
struct Moments {
  Tensor exp_avg, exp_avg_sq;
};

// The update. Every kind works with every weight and gradient format: a block at a time is brought
// to float32, updated and put back (bfloat16 weights with stochastic rounding).
class Optimizer {
 public:
  // One parameter with its state.
  struct Slot {
    size_t parameter = 0;  // in the store
    bool decays = false;   // its group
    bool is_8bit = false;  // how this slot's moments are kept
    int64_t updates = 0;   // applied to it so far
    // Another process keeps its state and updates its parameter: here updates are only counted, and
    // `state` stays empty.
    bool is_elsewhere = false;
    // By the names that optimizer.pt or optimizer.safetensors has them under ("exp_avg"); undefined
    // before the first update, as torch has it.
    std::vector<std::pair<std::string, Tensor>> state;

    [[nodiscard]] Tensor* find(const std::string& name);
    [[nodiscard]] const Tensor& at(const std::string& name) const;  // Requires: it is there
  };

  virtual ~Optimizer() = default;

  [[nodiscard]] const OptimizerOptions& options() const { return options_; }
  [[nodiscard]] ParameterStore& parameters() const { return parameters_; }
  // One for each trained parameter, those that decay first, each group in the store's order:
  // torch's numbering in optimizer.pt.
  [[nodiscard]] std::vector<Slot>& slots() { return slots_; }
  [[nodiscard]] const std::vector<Slot>& slots() const { return slots_; }

  // Updates every parameter that has a gradient, multiplied with `factor` (clipping, loss scale).
  // `update` counts the updates before this one: with seed it names the rounding's numbers.
  virtual void step(double learning_rate, double factor, int64_t update);
  // One parameter, by its place in the store.
  void step_one(size_t parameter, double learning_rate, double factor, int64_t update);

  // Fills a slot with fresh state (zeros), of the shapes and types that a file of this kind has.
  virtual void create_state(Slot& slot) const = 0;

 protected:
  Optimizer(ParameterStore& parameters, const std::vector<bool>& decays,
            const OptimizerOptions& options);
  [[nodiscard]] Parameter& parameter_of(const Slot& slot) const;
  [[nodiscard]] double weight_decay_of(const Slot& slot) const;
  // What rounds a bfloat16 weight in this update.
  [[nodiscard]] uint64_t rounding_key(const Slot& slot, int64_t update) const;
  // Counts the update and makes the state where there is none.
  void begin_update(Slot& slot) const;
  virtual void update_slot(Slot& slot, double learning_rate, double factor, int64_t update) = 0;
  [[nodiscard]] virtual Moments read_moments(const Slot& slot) const;
  virtual void write_moments(Slot& slot, const Moments& moments) const;

 private:
  friend Moments moments_of(const Optimizer& optimizer, const Slot& slot);
  friend void set_moments(const Optimizer& optimizer, Slot& slot, const Moments& moments);

  ParameterStore& parameters_;
  OptimizerOptions options_;
  std::vector<Slot> slots_;
  std::vector<size_t> slot_of_;
};

// "adamw", "adamw_8bit" (bitsandbytes' format and arithmetic), "adamw_companded_8bit"
// (FlashOptim's), "adafactor" (as transformers' Trainer sets it up), "sgd".
[[nodiscard]] const std::vector<std::string>& optimizer_kinds();
[[nodiscard]] std::unique_ptr<Optimizer> make_optimizer(ParameterStore& parameters,
                                                        const std::vector<bool>& decays,
                                                        const OptimizerOptions& options);

// A slot's moments, zeros where it has no state yet; and back: the slot gets its state from them,
// rounded as its kind keeps it. Error(kConfig) where the kind has none (adafactor, sgd).
[[nodiscard]] Moments moments_of(const Optimizer& optimizer, const Optimizer::Slot& slot);
void set_moments(const Optimizer& optimizer, Optimizer::Slot& slot, const Moments& moments);
// Error(kConfig) naming both kinds where a state of `from` cannot become one of `to`.
void check_conversion(const std::string& from, const std::string& to);

// The 2-norm of all gradients together; not finite where any of them is.
[[nodiscard]] double gradient_norm(const ParameterStore& parameters);

}  // namespace finetune
