// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "finetune/config/optimizer_names.h"
#include "finetune/kernels/parameter_store.h"

// What an optimizer is: its arithmetic (UpdateRule) and its descriptor (OptimizerKind), from which
// the memory plan, the files of a checkpoint and the messages follow.
namespace finetune {

struct TorchDict;

struct OptimizerOptions {
  std::string kind = "adamw";  // one of optimizer_kinds()
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.0;          // of the parameters that decay
  OptimizerArguments arguments = {};  // of the kind (optim_args); one that is absent is the default
  uint64_t seed = 0;                  // of stochastic rounding

  // An argument of the kind. Requires: it has one of this name and type.
  template <class T>
  [[nodiscard]] T argument(const char* name) const {
    return std::get<T>(value_of(name));
  }

 private:
  [[nodiscard]] OptimizerValue value_of(const char* name) const;
};

// Adam's moments in float32, of the parameter's shape: what a state is changed to another kind or
// format through.
struct Moments {
  Tensor exp_avg, exp_avg_sq;
};

// One parameter with its state.
struct OptimizerSlot {
  size_t parameter = 0;  // in the store
  size_t group = 0;      // in Optimizer::groups()
  bool is_8bit = false;  // the format of its moments
  int64_t updates = 0;   // applied to it so far
  // Another process keeps its state and updates its parameter: here updates are only counted, and
  // `state` stays empty.
  bool is_elsewhere = false;
  // By the names that optimizer.pt or optimizer.safetensors has them under ("exp_avg"); empty
  // before the first update, as torch has it.
  std::vector<std::pair<std::string, Tensor>> state;

  [[nodiscard]] Tensor* find(const std::string& name);
  [[nodiscard]] const Tensor& at(const std::string& name) const;  // Requires: it is there
};

// One parameter in one update.
struct ParameterUpdate {
  Parameter& parameter;  // has a gradient
  OptimizerSlot& slot;   // has its state; `updates` counts this one too
  double learning_rate = 0.0;
  double factor = 1.0;        // of the gradient (clipping, loss scale)
  uint64_t rounding_key = 0;  // rounds a bfloat16 weight
};

// The arithmetic of one kind with the options of one group of parameters. Works with every weight
// and gradient format that the kind does not refuse: a block at a time is converted to float32,
// updated and stored back (update_in_chunks: bfloat16 weights with stochastic rounding).
class UpdateRule {
 public:
  explicit UpdateRule(OptimizerOptions options) : options_(std::move(options)) {}
  virtual ~UpdateRule() = default;
  UpdateRule(const UpdateRule&) = delete;
  UpdateRule& operator=(const UpdateRule&) = delete;

  // weight_decay holds for every parameter of the group.
  [[nodiscard]] const OptimizerOptions& options() const { return options_; }

  // Must not write the gradient, nor depend on the number of threads.
  virtual void update(const ParameterUpdate& update) = 0;
  // All parameters of a group; one after another unless a kind can do them in one call, which may
  // scale their gradients.
  virtual void update_all(const std::vector<ParameterUpdate>& updates);

  // The moments of a state, and a state from moments, rounded as the kind keeps it. A kind with
  // has_moments overrides both; Error(kConfig) otherwise. Requires: a slot with state.
  [[nodiscard]] virtual Moments read_moments(const OptimizerSlot& slot) const;
  virtual void write_moments(OptimizerSlot& slot, const Moments& moments) const;

 private:
  OptimizerOptions options_;
};

// One tensor of a parameter's state.
struct StateTensor {
  std::string name;
  at::ScalarType type = at::kFloat;
  std::vector<int64_t> shape = {};
  bool is_signed = false;    // a file may hold negative numbers
  bool is_optional = false;  // nothing reads it: a file may lack it
  // Not zeros but this constant, which all parameters share: a file must hold the same.
  Tensor table = {};
};

// How optimizer.pt holds the states: the state_dict of the class that transformers' Trainer makes.
struct TorchFormat {
  // Appends what a group has beside weight_decay, lr, initial_lr and params. nullptr: no class of
  // transformers has these states; they are stored in optimizer.safetensors.
  void (*add_options)(TorchDict& group, const OptimizerOptions& options) = nullptr;
  bool step_is_tensor = false;  // a float32 tensor; else a number
  bool counts_updates = true;   // false: files of the class have no "step"
  // Which files are of this kind: those of which a group has all of these keys, or a state has any
  // of these. What no kind recognises is the first kind's.
  std::vector<std::string> group_keys = {};
  std::vector<std::string> state_keys = {};
  // States that are not supported, each with the reason: {"exp_avg", "belongs to ..."}.
  std::vector<std::pair<std::string, std::string>> refused_states = {};
};

// The descriptor. Its other half, names and keys, is the OptimizerNames of the same name.
struct OptimizerKind {
  std::unique_ptr<UpdateRule> (*make)(const OptimizerOptions& options) = nullptr;
  // The state of a parameter of these sizes, in the order of the files.
  std::vector<StateTensor> (*state)(at::IntArrayRef sizes, bool is_8bit,
                                    const OptimizerOptions& options) = nullptr;
  // Whether this parameter's state has 8 bits. nullptr: the kind has one format.
  bool (*is_8bit)(const std::string& parameter, int64_t count,
                  const OptimizerOptions& options) = nullptr;
  // Why a parameter of this shape and format cannot be updated; empty: it can. nullptr: all can.
  std::string (*refusal)(const Parameter& parameter) = nullptr;
  bool has_moments = false;   // states convert to and from those of other such kinds
  bool is_blockwise = false;  // computes in blocks of a fixed size, whatever the number of threads
  TorchFormat torch = {};
  std::string name = {};  // set by the table
};

// Those of config/optimizers.def, then those added.
[[nodiscard]] const std::deque<OptimizerKind>& optimizers();
[[nodiscard]] const OptimizerKind* find_optimizer(const std::string& name);     // or nullptr
[[nodiscard]] const OptimizerKind& optimizer_of_kind(const std::string& name);  // or Error(kConfig)
// Their names.
[[nodiscard]] std::vector<std::string> optimizer_kinds();

// Adds both halves of an optimizer that is not in optimizers.def (tests).
void add_optimizer(OptimizerNames names, OptimizerKind kind);

// The rule of options.kind. Error(kConfig) where there is no such kind.
[[nodiscard]] std::unique_ptr<UpdateRule> make_update_rule(const OptimizerOptions& options);

// Fills the slot's state as it is before the first update. Requires: slot.is_8bit as it shall be.
void create_state(const OptimizerOptions& options, const Parameter& parameter, OptimizerSlot& slot);

// Bytes of one parameter's state, for plans: shared tables and single numbers are left out.
[[nodiscard]] int64_t state_bytes(const OptimizerOptions& options, const std::string& parameter,
                                  at::IntArrayRef sizes);

// Error(kConfig) naming both kinds where a state of `from` cannot become one of `to`.
void check_conversion(const std::string& from, const std::string& to);

}  // namespace finetune
