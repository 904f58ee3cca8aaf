// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "finetune/config/optimizer_names.h"
#include "finetune/params/store.h"

// An optimizer consists of its arithmetic (UpdateRule) and its descriptor (OptimizerKind); memory
// plan, checkpoint files and messages are derived from the descriptor.
namespace finetune {

struct TorchDict;

struct OptimizerOptions {
  std::string kind = "adamw";  // one of optimizer_kinds()
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.0;          // of the parameters with weight decay
  OptimizerArguments arguments = {};  // of the kind (optim_args); absent ones have their defaults
  uint64_t seed = 0;                  // of stochastic rounding

  // Returns an argument of the kind. Requires: the kind has an argument of this name and type.
  template <class T>
  [[nodiscard]] T argument(const char* name) const {
    return std::get<T>(value_of(name));
  }

 private:
  [[nodiscard]] OptimizerValue value_of(const char* name) const;
};

// Adam's moments in float32 and the parameter's shape: the intermediate form when states are
// converted to another kind or format.
struct Moments {
  Tensor exp_avg, exp_avg_sq;
};

// The optimizer state of one parameter.
struct OptimizerSlot {
  size_t parameter = 0;  // index in the store
  size_t group = 0;      // index in Optimizer::groups()
  bool is_8bit = false;  // whether the moments have 8 bits
  int64_t updates = 0;   // number of updates applied to it
  // Another rank owns the state and updates the parameter; here `updates` is counted and `state` is
  // empty.
  bool is_elsewhere = false;
  // Tensors by their names in optimizer.pt or optimizer.safetensors ("exp_avg"); empty before the
  // first update, as in torch.
  std::vector<std::pair<std::string, Tensor>> state;

  [[nodiscard]] Tensor* find(const std::string& name);
  [[nodiscard]] const Tensor& at(const std::string& name) const;  // Requires: it is there
};

// One parameter in one update.
struct ParameterUpdate {
  Parameter& parameter;  // has a gradient
  OptimizerSlot& slot;   // has its state; `updates` includes this one
  double learning_rate = 0.0;
  double factor = 1.0;        // applied to the gradient (clipping, loss scale)
  uint64_t rounding_key = 0;  // random key for stochastic rounding of a bfloat16 weight
};

// The arithmetic of one kind with the options of one parameter group. Supports every weight and
// gradient format that the kind does not refuse: each block is converted to float32, updated and
// stored back (update_in_chunks: bfloat16 weights with stochastic rounding).
class UpdateRule {
 public:
  explicit UpdateRule(OptimizerOptions options) : options_(std::move(options)) {}
  virtual ~UpdateRule() = default;
  UpdateRule(const UpdateRule&) = delete;
  UpdateRule& operator=(const UpdateRule&) = delete;

  // The weight_decay applies to every parameter of the group.
  [[nodiscard]] const OptimizerOptions& options() const { return options_; }

  // Must not write to the gradient; the result must not depend on the number of threads.
  virtual void update(const ParameterUpdate& update) = 0;
  // Updates all parameters of a group, one after another by default. A kind that overrides this
  // with a single call may scale the gradients.
  virtual void update_all(const std::vector<ParameterUpdate>& updates);

  // Convert a state to moments, and moments to a state in the kind's precision. A kind with
  // has_moments overrides both; the defaults throw Error(kConfig). Requires: a slot with state.
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
  bool is_signed = false;    // a file may contain negative values
  bool is_optional = false;  // never read: a file may lack it
  // If defined: the tensor is this constant, shared by all parameters, and a file must contain the
  // same values.
  Tensor table = {};
};

// The layout of states in optimizer.pt: the state_dict of the class that transformers' Trainer
// uses.
struct TorchFormat {
  // Appends a group's entries other than weight_decay, lr, initial_lr and params. nullptr:
  // transformers has no class with these states; they are stored in optimizer.safetensors.
  void (*add_options)(TorchDict& group, const OptimizerOptions& options) = nullptr;
  bool step_is_tensor = false;  // "step" is a float32 tensor; otherwise an int
  bool counts_updates = true;   // false: files of the class have no "step"
  // A file is of this kind if a group has all of group_keys or a state has any of state_keys. A
  // file that no kind recognises belongs to the first kind.
  std::vector<std::string> group_keys = {};
  std::vector<std::string> state_keys = {};
  // Unsupported states, each with the reason: {"exp_avg", "belongs to ..."}.
  std::vector<std::pair<std::string, std::string>> refused_states = {};
};

// The descriptor. Name and keys are in the OptimizerNames of the same name.
struct OptimizerKind {
  std::unique_ptr<UpdateRule> (*make)(const OptimizerOptions& options) = nullptr;
  // Returns the state of a parameter of these sizes, in the order of the files.
  std::vector<StateTensor> (*state)(at::IntArrayRef sizes, bool is_8bit,
                                    const OptimizerOptions& options) = nullptr;
  // Whether this parameter's state has 8 bits. nullptr: the kind has a single format.
  bool (*is_8bit)(ParameterRole role, int64_t count, const OptimizerOptions& options) = nullptr;
  // Returns why a parameter of this shape and format cannot be updated, or an empty string.
  // nullptr: every parameter can.
  std::string (*refusal)(const Parameter& parameter) = nullptr;
  bool has_moments = false;  // states convert to and from those of other kinds with moments
  // Computes in blocks of fixed size, independent of the number of threads.
  bool is_blockwise = false;
  // A value's update depends on values that are not of its block, so parameters are not divided.
  bool reads_whole = false;
  TorchFormat torch = {};
  std::string name = {};  // set by the table
};

// The kinds of config/optimizers.def, followed by those added with add_optimizer().
[[nodiscard]] const std::deque<OptimizerKind>& optimizers();
[[nodiscard]] const OptimizerKind* find_optimizer(const std::string& name);     // or nullptr
[[nodiscard]] const OptimizerKind& optimizer_of_kind(const std::string& name);  // or Error(kConfig)
// Returns the names of optimizers().
[[nodiscard]] std::vector<std::string> optimizer_kinds();

// Registers an optimizer that is not in optimizers.def (for tests).
void add_optimizer(OptimizerNames names, OptimizerKind kind);

// Returns the rule of options.kind. Throws Error(kConfig) for an unknown kind.
[[nodiscard]] std::unique_ptr<UpdateRule> make_update_rule(const OptimizerOptions& options);

// Creates the slot's state before the first update: of the values that this rank has. Requires:
// slot.is_8bit is set.
void create_state(const OptimizerOptions& options, const Parameter& parameter, OptimizerSlot& slot);
// The same of all values of the parameter. `device`: where.
void create_whole_state(const OptimizerOptions& options, const Parameter& parameter,
                        OptimizerSlot& slot, c10::Device device);
// Where the state of values [first, ..) begins in a flattened tensor of the state of all values:
// first / 256 in one number for 256 values. By tensor; `first` is a multiple of kDivisionUnit.
[[nodiscard]] std::vector<int64_t> state_offsets(const OptimizerOptions& options, bool is_8bit,
                                                 int64_t first);

// Returns the bytes of one parameter's state, for plans; shared tables and scalars are not counted.
[[nodiscard]] int64_t state_bytes(const OptimizerOptions& options, ParameterRole role,
                                  at::IntArrayRef sizes);

// Throws Error(kConfig) naming both kinds if a state of `from` cannot be converted to `to`.
void check_conversion(const std::string& from, const std::string& to);

}  // namespace finetune
