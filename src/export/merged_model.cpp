// SPDX-License-Identifier: MIT
#include "finetune/export/merged_model.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "finetune/base/error.h"
#include "finetune/base/file_system.h"
#include "finetune/base/json.h"
#include "finetune/base/model_files.h"
#include "finetune/base/printable.h"
#include "finetune/base/text.h"
#include "finetune/kernels/one_threaded.h"
#include "finetune/model/adapter.h"
#include "finetune/model/model_folder.h"
#include "finetune/model/nf4_files.h"
#include "finetune/model/parameter_shapes.h"
#include "finetune/nn/experts.h"
#include "finetune/tensor/model_tensors.h"

namespace finetune {
namespace {

constexpr int64_t kBlockRows = 1024;  // of a pass over a matrix

// The rows of a file's tensors in float32.
class RowSource {
 public:
  RowSource(const std::string& folder, const ModelConfig& config)
      : folder_(folder),
        tensors_(
            load_model_tensors(FileSystem::local(), folder, /*maps=*/false, stored_names(config))),
        quantized_(tensors_) {}
  RowSource(const RowSource&) = delete;
  RowSource& operator=(const RowSource&) = delete;

  [[nodiscard]] const ModelTensors& tensors() const { return tensors_; }
  [[nodiscard]] const std::string& folder() const { return folder_; }
  [[nodiscard]] bool has(const std::string& name) const { return tensors_.has(name); }
  // Names of the tensors that hold a weight each.
  [[nodiscard]] std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const TensorInfo& info : tensors_.tensors()) {
      if (!quantized_.is_part(info.name)) names.push_back(info.name);
    }
    return names;
  }
  [[nodiscard]] std::vector<int64_t> shape(const std::string& name) const {
    return quantized_.has(name) ? quantized_.shape_and_type(name).first : tensors_.info(name).shape;
  }
  // The type in which it was computed.
  [[nodiscard]] at::ScalarType type(const std::string& name) const {
    return quantized_.has(name) ? quantized_.shape_and_type(name).second : tensors_.type_of(name);
  }
  // Takes what NF4's codes of the tensor mean for its values; `from`: the type to which they are
  // rounded before.
  void quantize(const std::string& name, at::ScalarType from, WeightFormat format) const {
    to_quantize_[name] = {from, format};
  }
  [[nodiscard]] Tensor whole(const std::string& name) const {
    return checked(name, tensors_.read(name));
  }
  // The caller may write to the result.
  [[nodiscard]] Tensor rows(const std::string& name, int64_t first, int64_t count) const {
    if (quantized_.has(name) || to_quantize_.contains(name)) {
      return dequantized_rows(name, first, count);
    }
    if (tensors_.info(name).shape.empty()) return whole(name);
    if (tensors_.reads_rows(name)) return checked(name, tensors_.read_rows(name, first, count));
    if (last_ != name) {
      value_ = tensors_.read(name);
      last_ = name;
    }
    return checked(name, value_.narrow(0, first, count).clone());
  }

 private:
  [[nodiscard]] Tensor checked(const std::string& name, const Tensor& value) const {
    if (value.is_floating_point()) return value.to(at::kFloat);
    throw Error(ErrorKind::kData,
                format_text("'{}': tensor '{}' holds no floating-point numbers; quantised weights "
                            "cannot be exported",
                            tensors_.path_of(name), name));
  }

  [[nodiscard]] const QuantizedValues& codes_of(const std::string& name) const {
    if (last_codes_ != name) {
      const auto found = to_quantize_.find(name);
      codes_ = found == to_quantize_.end()
                   ? quantized_.read(name)
                   : quantized(whole(name).to(found->second.from), found->second.format);
      last_codes_ = name;
    }
    return codes_;
  }
  [[nodiscard]] static QuantizedValues quantized(const Tensor& values, WeightFormat format) {
    const WeightFormatTraits& traits = traits_of(format);
    const ParameterTensors stored = traits.allocate(values.sizes(), at::kCPU);
    traits.assign(stored, values);
    return {.sizes = values.sizes().vec(), .codes = stored.weight, .scales = stored.scales};
  }
  [[nodiscard]] Tensor dequantized_rows(const std::string& name, int64_t first,
                                        int64_t count) const {
    const QuantizedValues& values = codes_of(name);
    return traits_of(WeightFormat::kNf4)
        .rows({.weight = values.codes, .scales = values.scales}, values.sizes, first, count);
  }

  std::string folder_;
  ModelTensors tensors_;
  Nf4Files quantized_;
  mutable std::string last_;  // the tensor of a pickled file that was read last
  mutable Tensor value_;
  mutable std::string last_codes_;  // the quantised tensor that was read last
  mutable QuantizedValues codes_;
  struct Quantization {
    at::ScalarType from;
    WeightFormat format;
  };
  mutable std::map<std::string, Quantization> to_quantize_;
};

// What an adapter adds to one weight.
struct Addition {
  // Linear layers [out, in]: A [r, in], B [out, r]. Transposed ones [in, out] and embeddings
  // [rows, columns], whose rows are the columns of A: A [r, in], B [out, r].
  Tensor a, b;
  double scale = 1.0;
  bool is_transposed = false;
  Tensor magnitude = {};  // m [out] of DoRA
  int64_t stack = 0;      // E of a stack [E, ...] (nn/stacked_linear.h); 0 for one matrix

  // Adds the rows of s B A.
  void add_to(Tensor& rows, int64_t first) const {
    const int64_t count = rows.size(0);
    if (stack > 0) return add_to_stack(rows, first);
    rows.add_(is_transposed ? at::mm(a.narrow(1, first, count).t(), b.t())
                            : at::mm(b.narrow(0, first, count), a),
              scale);
  }
  void add_to_stack(const Tensor& matrices, int64_t first) const {
    const Tensor of_each_a = a.view({stack, -1, a.size(1)});
    const Tensor of_each_b = b.view({b.size(0), -1, stack});
    for (int64_t i = 0; i < matrices.size(0); ++i) {
      const Tensor product = at::mm(of_each_b.select(2, first + i), of_each_a[first + i]);
      matrices[i].add_(is_transposed ? product.t() : product, scale);
    }
  }
  [[nodiscard]] bool equals(const Addition& other) const {
    if (scale != other.scale || magnitude.defined() || other.magnitude.defined()) return false;
    // The output layer's [V, C] and the embedding's are the same matrix with the roles of A and B
    // exchanged.
    if (is_transposed == other.is_transposed) return a.equal(other.a) && b.equal(other.b);
    return a.equal(other.b.t()) && b.equal(other.a.t());
  }
};

// The result is the caller's: it may write to it.
using Rows = std::function<Tensor(int64_t first, int64_t count)>;

// W + s B A, or m / ||W + s B A|| (W + s B A), whose norms are those of each output.
Rows added(Rows base, const Addition& addition, int64_t all_rows) {
  const Rows sum = [base = std::move(base), addition](int64_t first, int64_t count) {
    Tensor rows = base(first, count);
    addition.add_to(rows, first);
    return rows;
  };
  if (!addition.magnitude.defined()) return sum;
  if (!addition.is_transposed) {
    return [sum, m = addition.magnitude](int64_t first, int64_t count) {
      const Tensor v = sum(first, count);
      const Tensor norms = at::linalg_vector_norm(v, 2, at::IntArrayRef{1}, /*keepdim=*/true);
      return v * (m.narrow(0, first, count).unsqueeze(1) / norms);
    };
  }
  // An output's norm is that of a column: it takes a pass over all rows.
  const auto factors = std::make_shared<Tensor>();
  return [sum, factors, m = addition.magnitude, all_rows](int64_t first, int64_t count) {
    if (!factors->defined()) {
      Tensor squares = at::zeros({m.numel()}, at::kDouble);
      for (int64_t row = 0; row < all_rows; row += kBlockRows) {
        const Tensor v = sum(row, std::min(kBlockRows, all_rows - row)).to(at::kDouble);
        squares += v.square().sum(0);
      }
      *factors = m / squares.sqrt().to(at::kFloat);
    }
    return sum(first, count) * *factors;
  };
}

// The adapter of a folder, by the parameters of its base.
class Adapter {
 public:
  Adapter(const std::string& folder, const nn::LoraConfig& lora, const ModelConfig& config)
      : source_(std::make_shared<RowSource>(folder, config)),
        targets_(lora),
        is_transposed_(has_transposed_linear(config)) {
    for (const TensorInfo& info : source_->tensors().tensors()) unused_.push_back(info.name);
  }

  // Whether the file holds the weight itself.
  [[nodiscard]] bool holds(const std::string& parameter) const { return source_->has(parameter); }
  // Whether the configuration lets the adapter replace the weight. `shared`: its other name, empty
  // if there is none; a module that is saved whole takes the one that it is tied to along.
  [[nodiscard]] bool replaces(const std::string& parameter, const std::string& shared = {}) const {
    if (!source_->has(parameter)) return false;
    if (!module_folder(parameter).empty()) return true;
    const nn::LoraConfig& lora = targets_.config();
    const std::string module = parameter.substr(0, parameter.rfind('.'));
    return nn::trains_whole(lora, parameter, source_->has(module + ".lora_A.weight")) ||
           (!shared.empty() && nn::is_saved_whole(shared, lora.modules_to_save));
  }
  // PEFT also saves the table of an embedding that has an adapter. Throws if the file's weight is
  // not the base's, which the configuration does not let the adapter change.
  void check_is_of_base(const std::string& parameter, const Rows& base, int64_t all_rows) {
    use(parameter);
    const at::ScalarType type = source_->type(parameter);
    for (int64_t row = 0; row < all_rows; row += kBlockRows) {
      const int64_t count = std::min(kBlockRows, all_rows - row);
      const Tensor own = source_->rows(parameter, row, count).to(type);
      if (own.equal(base(row, count).to(type))) continue;
      fail(
          format_text("tensor '{}' differs from the base's, which {} does not let the adapter "
                      "change; name the module in modules_to_save, or export with the base that "
                      "it was trained on",
                      parameter, kAdapterConfigFile));
    }
  }
  [[nodiscard]] Rows rows_of(const std::string& parameter) {
    use(parameter);
    return [source = source_, parameter](int64_t first, int64_t count) {
      return source->rows(parameter, first, count);
    };
  }
  [[nodiscard]] const TensorInfo& info(const std::string& parameter) const {
    return source_->tensors().info(parameter);
  }

  // What is added to a weight "x.y.weight"; nullopt: nothing is. `shared`: another name of the
  // weight, or empty.
  [[nodiscard]] std::optional<Addition> addition(const std::string& parameter,
                                                 const std::string& shared,
                                                 const std::vector<int64_t>& shape) {
    constexpr std::string_view kWeight = ".weight";
    const nn::StackedParameter stack = nn::stacked_parameter(parameter);
    if (shape.size() == 3 || stack.expert) return addition_to_experts(parameter, stack, shape);
    if (!parameter.ends_with(kWeight)) return std::nullopt;
    const std::string module = parameter.substr(0, parameter.size() - kWeight.size());
    const bool is_embedding = source_->has(module + ".lora_embedding_A");
    const std::string a = module + (is_embedding ? ".lora_embedding_A" : ".lora_A.weight");
    const std::string b = module + (is_embedding ? ".lora_embedding_B" : ".lora_B.weight");
    if (!source_->has(a)) return std::nullopt;
    auto settings =
        is_embedding ? targets_.find_embedding(module) : targets_.find(module, /*is_output=*/false);
    // With ensure_weight_tying the output layer has the adapter of the embedding.
    if (!settings && targets_.config().ensure_weight_tying && shared.ends_with(kWeight)) {
      settings = targets_.find_embedding(shared.substr(0, shared.size() - kWeight.size()));
    }
    if (!settings || !source_->has(b)) {
      fail(format_text("tensor '{}' is there, but {} gives the module no adapter", a,
                       kAdapterConfigFile));
    }
    Addition addition{.a = source_->whole(a),
                      .b = source_->whole(b),
                      .scale = settings->scale,
                      .is_transposed = is_embedding || is_transposed(module)};
    use(a);
    use(b);
    const auto fits = [&] {
      if (addition.a.dim() != 2 || addition.b.dim() != 2 || shape.size() != 2) return false;
      const int64_t rows = addition.is_transposed ? addition.a.size(1) : addition.b.size(0);
      const int64_t columns = addition.is_transposed ? addition.b.size(0) : addition.a.size(1);
      return rows == shape[0] && columns == shape[1] && addition.a.size(0) == settings->r &&
             addition.b.size(1) == settings->r;
    };
    if (!fits()) fail(format_text("tensor '{}' does not fit the base's '{}'", a, parameter));
    // Without use_dora a magnitude is a tensor that nothing uses.
    const std::string m = module + ".lora_magnitude_vector";
    if (targets_.config().use_dora && !source_->has(m)) {
      fail(format_text("lacks '{}', which use_dora asks for", m));
    }
    if (targets_.config().use_dora) {
      addition.magnitude = source_->whole(m).flatten();
      use(m);
      if (addition.magnitude.numel() != addition.b.size(0)) {
        fail(format_text("tensor '{}' does not fit the base's '{}'", m, parameter));
      }
    }
    return addition;
  }

  // Of a stack of E matrices, or of one expert's part of it.
  [[nodiscard]] std::optional<Addition> addition_to_experts(const std::string& parameter,
                                                            const nn::StackedParameter& stack,
                                                            const std::vector<int64_t>& shape) {
    const auto settings = targets_.find_parameter(stack.name);
    if (!settings) return std::nullopt;
    const bool is_inner = stack.is_gate_up() && targets_.find_parameter(stack.other()).has_value();
    const std::string module = stack.adapter(is_inner);
    const std::string a = module + ".lora_A.weight", b = module + ".lora_B.weight";
    if (!source_->has(a) || !source_->has(b)) return std::nullopt;  // check_complete() names them
    Addition addition{.a = kept(a),
                      .b = kept(b),
                      .scale = settings->scale,
                      .is_transposed = stack.is_transposed,
                      .stack = stack.expert ? 0 : shape[0]};
    use(a);
    use(b);
    const int64_t inputs = shape[stack.is_transposed || stack.expert ? 1 : 2];
    const int64_t of_one = shape[stack.expert ? 0 : stack.is_transposed ? 2 : 1];
    const int64_t outputs = stack.expert && stack.is_gate_up() ? 2 * of_one : of_one;
    const int64_t rank = addition.a.size(0);
    const int64_t count = rank / settings->r;
    const bool fits = rank == count * settings->r && stack.expert.value_or(0) < count &&
                      (stack.expert || count == shape[0]) &&
                      addition.a.sizes() == at::IntArrayRef{rank, inputs} &&
                      addition.b.sizes() == at::IntArrayRef{outputs, rank};
    if (!fits) fail(format_text("tensor '{}' does not fit the base's '{}'", a, parameter));
    if (!stack.expert) return addition;
    addition.a = addition.a.narrow(0, *stack.expert * settings->r, settings->r);
    addition.b = addition.b.view({outputs, settings->r, count})
                     .select(2, *stack.expert)
                     .narrow(0, stack.is_up ? of_one : 0, of_one)
                     .contiguous();
    return addition;
  }

  // Throws unless each layer that the configuration names has its adapter. `expected`: the weights
  // of a model with the adapter.
  void check_complete(const Weights& expected) const {
    std::vector<std::string> missing;
    for (const Weight& weight : expected) {
      const bool is_of_adapter = weight.name().find(".lora_") != std::string::npos;
      if (is_of_adapter && !source_->has(weight.name())) missing.push_back(weight.name());
    }
    if (!missing.empty()) {
      fail("lacks " + listed(missing) +
           ", which its adapter_config.json asks for; its file is truncated");
    }
  }

  void check_all_used() const {
    if (source_->tensors().tensors().empty()) fail("holds no adapter: there are no tensors");
    if (unused_.empty()) return;
    fail("the base has no place for " + listed(unused_) + "; it is the adapter of another model");
  }

 private:
  void use(const std::string& name) { std::erase(unused_, name); }
  // The factors of a layer's experts, which each of them reads.
  [[nodiscard]] Tensor kept(const std::string& name) {
    constexpr size_t kMost = 4;
    const auto found = kept_.find(name);
    if (found != kept_.end()) return found->second;
    if (kept_.size() == kMost) kept_.clear();
    return kept_[name] = source_->whole(name);
  }
  // GPT-2's layers are stored as [in, out]; its output layer is not.
  [[nodiscard]] bool is_transposed(const std::string& module) const {
    return is_transposed_ && module.find(".h.") != std::string::npos;
  }
  [[noreturn]] void fail(const std::string& why) const {
    throw Error(ErrorKind::kData, "'" + source_->folder() + "': " + why);
  }

  std::shared_ptr<const RowSource> source_;
  nn::LoraTargets targets_;
  bool is_transposed_;
  std::vector<std::string> unused_;
  std::map<std::string, Tensor> kept_;
};

std::unique_ptr<Model> shape_of(const ModelConfig& config, std::optional<Head> head) {
  const c10::Device meta(c10::kMeta);
  const ModelOptions options = {.draw_weights = false};
  return make_model(head, config, 0, meta, options);
}

class Merger {
 public:
  Merger(MergedModel& result, std::optional<Head> head, MergeBase merge_base) : result_(result) {
    std::optional<nn::LoraConfig> lora = read_adapter_config(result_.folder);
    result_.config = read_model_config(result_.folder);
    const bool has_own = result_.config.jev.num_verbalizers > 0 || result_.config.laya;
    if (has_own) head = Head::kDecision;  // whatever the task's is
    if (merge_base == MergeBase::kTrained) format_ = base_format(result_.config, result_.folder);
    result_.config.lora.reset();
    result_.has_adapter = lora.has_value();
    result_.base = lora ? adapter_base(result_.folder, *lora) : result_.folder;
    model_ = shape_of(result_.config, head);
    tied_ = tied_names(result_.config);
    outputs_ = output_modules(result_.config, head);
    result_.head = head;
    result_.architecture = model_->architecture();
    base_ = std::make_shared<const RowSource>(result_.base, result_.config);
    if (!lora) return;
    adapter_.emplace(result_.folder, *lora, result_.config);
    // No model here trains shared weights apart, which PEFT allows; what else does not fit is found
    // tensor by tensor.
    std::unique_ptr<Model> adapted;
    try {
      ModelConfig with_adapter = result_.config;
      with_adapter.lora = lora;
      adapted = shape_of(with_adapter, head);
    } catch (const Error&) {
      return;
    }
    adapter_->check_complete(adapted->weights());
  }

  void run() {
    check_head_layers(result_.config, base_->names(), result_.folder);
    const std::vector<std::string> sources =
        weight_sources(result_.config, model_->weights(), base_->names());
    result_.dtype = type_of_most();
    std::vector<std::string> missing;
    for (size_t i = 0; i < sources.size(); ++i) {
      const Weight& weight = model_->weights()[i];
      if (const auto fixed =
              sources[i].empty() ? fixed_values(result_.config, weight) : std::nullopt) {
        add_fixed(weight, *fixed);
        continue;
      }
      if (sources[i].empty() && !(adapter_ && adapter_->replaces(weight.name()))) {
        missing.push_back(weight.name());
        continue;
      }
      add(weight, sources[i]);
    }
    if (!missing.empty()) {
      throw Error(ErrorKind::kData, "'" + result_.folder + "' lacks " + listed(missing) +
                                        ", which a " + result_.architecture + " has");
    }
    if (adapter_) adapter_->check_all_used();
    write_shared_apart();
    if (!result_.head) add_other_parts();
  }

 private:
  void add_fixed(const Weight& weight, const Tensor& values) {
    const Tensor rows = values.dim() == 0 ? values.view({1}) : values;
    result_.tensors.push_back(
        {.name = weight.name(),
         .shape = weight.sizes().vec(),
         .stored = result_.dtype,
         .rows = [rows](int64_t first, int64_t count) { return rows.narrow(0, first, count); }});
  }

  // What a base for images and text has besides its language model.
  void add_other_parts() {
    if (result_.config.laya) return;  // whose own folders have no config.json
    const std::string path = join_path(result_.base, kConfigFile);
    const auto json = read_json_file(path);
    if (!has_other_parts(json)) return;
    result_.whole_config = json.dump();
    for (const MergedTensor& tensor : result_.tensors) {
      result_.names_in_whole[tensor.name] = base_->tensors().stored_name(tensor.name);
    }
    for (const std::string& name : base_->names()) {
      if (!is_of_other_part(name)) continue;
      result_.other_tensors.push_back({.name = base_->tensors().stored_name(name),
                                       .shape = base_->shape(name),
                                       .stored = base_->type(name),
                                       .rows = [base = base_, name](int64_t first, int64_t count) {
                                         return base->rows(name, first, count);
                                       }});
    }
  }

  // Once one weight is no longer shared, transformers shares none: a bias of the output layer has a
  // tensor for each of its names.
  void write_shared_apart() {
    if (result_.config.tie_word_embeddings == model_->config().tie_word_embeddings) return;
    for (const Weight& weight : model_->weights()) {
      const std::string other = other_name(weight.name());
      const MergedTensor* own = result_.find(weight.name());
      if (other.empty() || own == nullptr || result_.find(other) != nullptr) continue;
      MergedTensor copy = *own;
      copy.name = other;
      result_.tensors.push_back(std::move(copy));
    }
  }

  void add(const Weight& weight, const std::string& source) {
    const std::vector<int64_t> shape = weight.sizes().vec();
    const std::string other = other_name(weight.name());
    const Part own = part(weight, weight.name(), other, source);
    if (other.empty() || !adapter_) return push(weight, weight.name(), shape, own);
    // The other use of a shared weight, as far as the adapter knows of it.
    const Part shared = part(weight, other, weight.name(), source);
    if (is_same(own, shared, shape[0])) return push(weight, weight.name(), shape, own);
    result_.config.tie_word_embeddings = false;
    push(weight, weight.name(), shape, own);
    push(weight, other, shape, shared);
  }

  struct Part {
    Rows rows;
    at::ScalarType stored = at::kFloat;
    bool is_replaced = false;  // by the adapter's
    Rows before_addition = {};
    std::optional<Addition> addition = {};
  };

  // Whether the run of the adapter kept this weight of a whole base in four bits.
  [[nodiscard]] bool was_quantized(const std::string& name, ParameterRole role) const {
    return !result_.config.is_nf4 && format_.of(name, role) == format_.matrices;
  }

  // `name`: the weight's, or its other one, which is `shared` otherwise.
  [[nodiscard]] Part part(const Weight& weight, const std::string& name, const std::string& shared,
                          const std::string& source) {
    const std::vector<int64_t> shape = weight.sizes().vec();
    Part part{.rows = {}, .stored = result_.dtype};
    if (adapter_ && adapter_->replaces(name, shared)) {
      part.is_replaced = true;
      check_shape(name, adapter_->info(name).shape, shape, result_.folder);
      part.rows = adapter_->rows_of(name);
    } else {
      check_shape(source, base_->shape(source), shape, result_.base);
      part.stored = base_->type(source);
      if (was_quantized(name, weight.role())) {
        base_->quantize(source, traits_of(format_.weights).type, *format_.matrices);
      }
      part.rows = [base = base_, source](int64_t first, int64_t count) {
        return base->rows(source, first, count);
      };
    }
    if (adapter_ && adapter_->holds(name) && !part.is_replaced) {
      check_shape(name, adapter_->info(name).shape, shape, result_.folder);
      adapter_->check_is_of_base(name, part.rows, shape.empty() ? 1 : shape[0]);
    }
    part.before_addition = part.rows;
    if (adapter_) part.addition = adapter_->addition(name, shared, shape);
    if (part.addition) part.rows = added(part.rows, *part.addition, shape[0]);
    return part;
  }

  // Whether two uses of a shared weight are the same after training.
  [[nodiscard]] static bool is_same(const Part& one, const Part& other, int64_t rows) {
    if (one.addition.has_value() != other.addition.has_value()) return false;
    if (one.addition && !one.addition->equals(*other.addition)) return false;
    if (!one.is_replaced && !other.is_replaced) return true;
    // PEFT also saves the table of an embedding that has an adapter.
    for (int64_t row = 0; row < rows; row += kBlockRows) {
      const int64_t count = std::min(kBlockRows, rows - row);
      if (!one.before_addition(row, count).equal(other.before_addition(row, count))) return false;
    }
    return true;
  }

  void push(const Weight& weight, const std::string& name, const std::vector<int64_t>& shape,
            Part part) {
    const bool is_linear =
        weight.role() == ParameterRole::kLinear && !nn::is_of_modules(name, outputs_);
    result_.tensors.push_back({.name = name,
                               .shape = shape,
                               .stored = part.stored,
                               .rows =
                                   [rows = std::move(part.rows)](int64_t first, int64_t count) {
                                     const c10::NoGradGuard no_grad;
                                     const OneThread one(true);
                                     return rows(first, count).contiguous();
                                   },
                               .is_linear = is_linear,
                               .is_stack = weight.role() == ParameterRole::kStackedLinear});
  }

  static void check_shape(const std::string& name, const std::vector<int64_t>& found,
                          const std::vector<int64_t>& expected, const std::string& folder) {
    if (found == expected) return;
    const auto text = [](const std::vector<int64_t>& shape) {
      std::vector<std::string> sizes;
      for (const int64_t size : shape) sizes.push_back(std::to_string(size));
      return "[" + join(sizes) + "]";
    };
    throw Error(ErrorKind::kData,
                format_text("'{}': tensor '{}' has the shape {}, but config.json asks for {}; "
                            "weights and config.json do not belong together",
                            folder, name, text(found), text(expected)));
  }

  // The other name of a weight that the model has once; empty: it has none.
  [[nodiscard]] std::string other_name(const std::string& name) const {
    const auto is_weight = [&](const std::string& other) {
      return std::ranges::any_of(model_->weights(),
                                 [&](const Weight& weight) { return weight.name() == other; });
    };
    for (const auto& [own, other] : tied_) {
      if (own == name && !is_weight(other)) return other;
    }
    return "";
  }

  [[nodiscard]] at::ScalarType type_of_most() const {
    std::map<at::ScalarType, int64_t> values = {{at::kFloat, 0}};
    for (const std::string& name : base_->names()) {
      const at::ScalarType type = base_->type(name);
      if (at::isFloatingType(type)) values[type] += c10::multiply_integers(base_->shape(name));
    }
    const auto by_values = [](const auto& one, const auto& other) {
      return one.second < other.second;
    };
    return std::ranges::max_element(values, by_values)->first;
  }

  MergedModel& result_;
  BaseFormat format_ = {};        // of the base, if it is that of training
  std::unique_ptr<Model> model_;  // without values
  std::vector<std::pair<std::string, std::string>> tied_;
  std::vector<std::string> outputs_;  // layers that no quantisation changes
  std::shared_ptr<const RowSource> base_;
  std::optional<Adapter> adapter_;
};

}  // namespace

const MergedTensor* MergedModel::find(const std::string& name) const {
  const auto found = std::ranges::find(tensors, name, &MergedTensor::name);
  return found == tensors.end() ? nullptr : &*found;
}

MergedModel merge_model(const std::string& folder, std::optional<Head> head, MergeBase base) {
  MergedModel result;
  result.folder = folder;
  Merger(result, head, base).run();
  return result;
}

LazyTensor in_type(const MergedTensor& tensor, at::ScalarType type) {
  return {.name = tensor.name,
          .type = type,
          .shape = tensor.shape,
          .rows = [rows = tensor.rows, type](int64_t first, int64_t count) {
            return rows(first, count).to(type);
          }};
}

}  // namespace finetune
