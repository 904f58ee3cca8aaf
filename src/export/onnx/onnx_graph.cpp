// SPDX-License-Identifier: MIT
#include "export/onnx/onnx_graph.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/ScalarTypeToTypeMeta.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numbers>
#include <optional>
#include <utility>

#include "finetune/base/error.h"
#include "finetune/base/text.h"
#include "finetune/nn/int8_products.h"

namespace finetune {
namespace {

using Names = std::vector<std::string>;
using Kind = RecordedArgument::Kind;
using Attributes = std::vector<OnnxAttribute>;

// The weights that nodes ask for, each written once, in the type of the file.
class Weights {
 public:
  Weights(const MergedModel& model, OnnxWeights type) : model_(model), type_(type) {}

  [[nodiscard]] const MergedTensor& of(const std::string& name) const {
    const MergedTensor* found = model_.find(name);
    if (found == nullptr) {
      throw Error(ErrorKind::kData, "the weight '" + name + "' is not among those of the model");
    }
    return *found;
  }
  [[nodiscard]] OnnxWeights type_of(const MergedTensor& tensor) const {
    const bool is_whole = type_ == OnnxWeights::kInt8 && !nn::has_int8_codes(tensor.shape);
    return is_whole ? OnnxWeights::kFloat32 : type_;
  }

  // The whole tensor in float32.
  std::string plain(const std::string& name) {
    add(in_type(of(name), at::kFloat));
    return name;
  }
  // A matrix, transposed if it is [in, out] in the file.
  std::string matrix(const MergedTensor& tensor, OnnxWeights type, bool transposed) {
    LazyTensor lazy = type == OnnxWeights::kInt8
                          ? codes(tensor)
                          : in_type(tensor, type == OnnxWeights::kFloat16 ? at::kHalf : at::kFloat);
    if (transposed) {
      lazy.name += kTransposedEnd;
      std::swap(lazy.shape[0], lazy.shape[1]);
      // A read of rows would read the whole matrix, so that it is kept while it is written.
      const auto whole = std::make_shared<Tensor>();
      lazy.rows = [whole, rows = lazy.rows, inputs = lazy.shape[0], outputs = lazy.shape[1]](
                      int64_t first, int64_t count) {
        if (first == 0) *whole = rows(0, outputs).t().contiguous();
        const Tensor part = whole->narrow(0, first, count);
        if (first + count == inputs) *whole = Tensor();
        return part;
      };
    }
    std::string name = lazy.name;
    add(std::move(lazy));
    return name;
  }
  // A scale for each row, [rows] or [rows, 1].
  std::string scales(const MergedTensor& tensor, bool is_column) {
    LazyTensor lazy{.name = scales_name(tensor.name, is_column),
                    .type = at::kFloat,
                    .shape = {tensor.shape[0]}};
    if (is_column) lazy.shape.push_back(1);
    lazy.rows = [tensor, is_column](int64_t first, int64_t count) {
      constexpr int64_t kValuesAtOnce = int64_t{1} << 18;
      const int64_t step = std::max<int64_t>(1, kValuesAtOnce / tensor.shape[1]);
      std::vector<Tensor> parts;
      for (int64_t row = first; row < first + count; row += step) {
        parts.push_back(
            nn::int8_scales(tensor.rows(row, std::min(step, first + count - row))).clone());
      }
      const Tensor scales = at::cat(parts);
      return is_column ? scales : scales.squeeze(1);
    };
    std::string name = lazy.name;
    add(std::move(lazy));
    return name;
  }
  std::string constant(const Tensor& values) {
    const std::string name = "constant_" + std::to_string(constants_++);
    add(lazy_tensor(name, values.contiguous()));
    return name;
  }
  [[nodiscard]] LazyTensors take() { return std::move(tensors_); }

 private:
  static LazyTensor codes(const MergedTensor& tensor) {
    return {.name = tensor.name,
            .type = at::kChar,
            .shape = tensor.shape,
            .rows = [tensor](int64_t first, int64_t count) {
              return nn::int8_codes(tensor.rows(first, count));
            }};
  }
  void add(LazyTensor tensor) {
    if (known_.insert(tensor.name).second) tensors_.push_back(std::move(tensor));
  }

  const MergedModel& model_;
  OnnxWeights type_;
  LazyTensors tensors_;
  std::set<std::string> known_;
  int64_t constants_ = 0;
};

class Converter {
 public:
  Converter(const RecordedGraph& graph, const OnnxNames& names, const MergedModel& model,
            OnnxWeights type)
      : graph_(graph), weights_(model, type), names_(graph.values.size()) {
    for (size_t i = 0; i < graph.inputs.size(); ++i) names_[graph.inputs[i]] = names.inputs[i];
    for (const RecordedCall& call : graph.calls) count_uses(call);
  }

  OnnxModel convert(const OnnxNames& names) {
    const std::vector<bool> is_used = used_values();
    for (const RecordedCall& call : graph_.calls) {
      const auto is_read = [&](size_t result) { return is_used[result]; };
      if (std::ranges::none_of(call.results, is_read)) continue;
      const auto found = operators().find(without_in_place(call.name));
      if (found == operators().end()) {
        throw Error(ErrorKind::kData, "'" + call.name + "' has no form in ONNX here");
      }
      call_ = &call;
      found->second(*this);
    }
    for (size_t i = 0; i < graph_.outputs.size(); ++i) {
      node("Identity", {name_of(graph_.outputs[i])}, {}, {names.outputs[i]});
    }
    OnnxModel model;
    model.nodes = std::move(nodes_);
    std::set<std::string> read;
    for (const OnnxNode& one : model.nodes) read.insert(one.inputs.begin(), one.inputs.end());
    model.initializers = weights_.take();
    std::erase_if(model.initializers,
                  [&](const LazyTensor& tensor) { return !read.contains(tensor.name); });
    return model;
  }

 private:
  using Operator = std::function<void(Converter&)>;
  // What it changes in place is a new value.
  static std::string without_in_place(std::string name) {
    const size_t end = std::min(name.find('.'), name.size());
    if (name[end - 1] == '_') name.erase(end - 1, 1);
    return name;
  }
  static const std::map<std::string, Operator>& operators();

  // --- nodes ---

  std::string node(const char* op, Names inputs, Attributes attributes = {}, Names outputs = {}) {
    if (outputs.empty()) outputs = {"v" + std::to_string(fresh_++)};
    std::string first = outputs.front();
    nodes_.push_back({op, std::move(inputs), std::move(outputs), std::move(attributes)});
    return first;
  }
  // Which values the outputs depend on.
  [[nodiscard]] std::vector<bool> used_values() const {
    std::vector<bool> is_used(graph_.values.size());
    for (const size_t output : graph_.outputs) is_used[output] = true;
    for (auto call = graph_.calls.rbegin(); call != graph_.calls.rend(); ++call) {
      const auto is_read = [&](size_t result) { return is_used[result]; };
      if (std::ranges::none_of(call->results, is_read)) continue;
      for (const RecordedArgument& argument : call->arguments) {
        for (const size_t value : argument.values) is_used[value] = true;
      }
    }
    return is_used;
  }
  std::string integers(const std::vector<int64_t>& values) {
    std::string& name = integers_[values];
    if (name.empty()) name = weights_.constant(at::tensor(values, at::kLong));
    return name;
  }
  // Without infinities, which other types of numbers may lack: softmax makes the same of the
  // largest.
  std::string scalar(double given, at::ScalarType type) {
    const double value = std::clamp<double>(given, std::numeric_limits<float>::lowest(),
                                            std::numeric_limits<float>::max());
    std::string& name = scalars_[{value, type}];
    if (name.empty()) {
      name = weights_.constant(at::full({}, value, at::TensorOptions(type)));
    }
    return name;
  }
  std::string integer_scalar(int64_t value) {
    return scalar(static_cast<double>(value), at::kLong);
  }

  // --- sizes ---

  // [1] int64
  std::string length(bool of_batch) {
    std::string& name = of_batch ? batch_ : tokens_;
    if (name.empty()) {
      const std::string shape = node("Shape", {names_[graph_.inputs.front()]});
      name = node("Gather", {shape, integers({of_batch ? 0 : 1})}, {{"axis", int64_t{0}}});
    }
    return name;
  }
  // [1] int64
  std::string size(const DynamicSize& form) {
    if (form.is_constant()) return integers({form.constant});
    for (const auto& [known, name] : sizes_) {
      if (known == form) return name;
    }
    std::string sum = form.constant == 0 ? std::string() : integers({form.constant});
    const auto add = [&](int64_t factor, const auto& number) {
      if (factor == 0) return;
      std::string term = number();
      if (factor != 1) term = node("Mul", {term, integers({factor})});
      sum = sum.empty() ? term : node("Add", {sum, term});
    };
    add(form.batch, [&] { return length(true); });
    add(form.tokens, [&] { return length(false); });
    add(form.cells, [&] { return node("Mul", {length(true), length(false)}); });
    add(form.squares, [&] { return node("Mul", {length(false), length(false)}); });
    sizes_.emplace_back(form, sum);
    return sum;
  }
  std::string list(const DynamicShape& sizes) {
    if (std::ranges::all_of(sizes, &DynamicSize::is_constant)) {
      std::vector<int64_t> values;
      for (const DynamicSize& one : sizes) values.push_back(one.constant);
      return integers(values);
    }
    Names parts;
    for (const DynamicSize& one : sizes) parts.push_back(size(one));
    return node("Concat", parts, {{"axis", int64_t{0}}});
  }

  // --- values ---

  [[nodiscard]] const RecordedValue& value(size_t number) const { return graph_.values[number]; }
  std::string name_of(size_t number) {
    std::string& name = names_[number];
    if (!name.empty()) return name;
    const RecordedValue& value = graph_.values[number];
    if (!value.parameter.empty()) {
      name = weights_.plain(value.parameter);
    } else if (value.constant.defined()) {
      name = weights_.constant(value.constant);
    } else {
      throw Error(ErrorKind::kData, "a tensor that no operator made");
    }
    return name;
  }
  std::string cast(const std::string& name, at::ScalarType from, at::ScalarType to) {
    return from == to ? name : node("Cast", {name}, {{"to", onnx_type(to)}});
  }

  // --- the call that is converted ---

  [[nodiscard]] const RecordedArgument& argument(size_t index) const {
    static const RecordedArgument kNone;
    return index < call_->arguments.size() ? call_->arguments[index] : kNone;
  }
  [[nodiscard]] bool has(size_t index) const { return argument(index).kind != Kind::kNone; }
  [[nodiscard]] const RecordedValue& input(size_t index) const {
    FT_CHECK(argument(index).kind == Kind::kValue, "a tensor as argument of " + call_->name);
    return value(argument(index).values.front());
  }
  [[nodiscard]] const RecordedValue& result() const { return value(call_->results.front()); }
  std::string in(size_t index) {
    (void)input(index);
    return name_of(argument(index).values.front());
  }
  // An argument, a tensor or a number, in this type.
  std::string typed(size_t index, at::ScalarType type) {
    const RecordedArgument& given = argument(index);
    if (given.kind == Kind::kValue) return cast(in(index), input(index).type, type);
    if (given.kind == Kind::kInteger && !given.integers.front().is_constant()) {
      return cast(size(given.integers.front()), at::kLong, type);
    }
    return scalar(number(index), type);
  }
  [[nodiscard]] double number(size_t index) const {
    const RecordedArgument& given = argument(index);
    if (given.kind == Kind::kInteger) return static_cast<double>(integer(index));
    FT_CHECK(given.kind == Kind::kNumber, "a number as argument of " + call_->name);
    return given.number;
  }
  [[nodiscard]] int64_t integer(size_t index) const {
    const RecordedArgument& given = argument(index);
    FT_CHECK(given.kind == Kind::kInteger && given.integers.front().is_constant(),
             "an integer as argument of " + call_->name);
    return given.integers.front().constant;
  }
  [[nodiscard]] std::vector<int64_t> axes(size_t index) const {
    const RecordedArgument& given = argument(index);
    std::vector<int64_t> all;
    for (const DynamicSize& one : given.integers) all.push_back(one.constant);
    return all;
  }
  [[nodiscard]] int64_t truth(size_t index) const { return argument(index).truth ? 1 : 0; }
  void set(std::string name) { names_[call_->results.front()] = std::move(name); }

  void unary(const char* op) { set(node(op, {typed(0, result().type)})); }
  void binary(const char* op) {
    const RecordedArgument& factor = argument(2);
    FT_CHECK(factor.kind == Kind::kNone || number(2) == 1.0, "alpha of " + call_->name);
    const at::ScalarType type = result().type;
    set(node(op, {typed(0, type), typed(1, type)}));
  }
  void compare(const char* op, bool negated = false) {
    at::ScalarType type = input(0).type;
    if (argument(1).kind == Kind::kValue) type = c10::promoteTypes(type, input(1).type);
    if (argument(1).kind == Kind::kNumber && !c10::isFloatingType(type)) type = at::kFloat;
    if (type == at::kBool) type = at::kInt;
    const std::string name = node(op, {typed(0, type), typed(1, type)});
    set(negated ? node("Not", {name}) : name);
  }
  void reshape() {
    const DynamicShape& from = input(0).shape;
    const DynamicShape& to = result().shape;
    if (from == to) return set(in(0));
    set(reshaped(in(0), from, to));
  }
  std::string reshaped(const std::string& name, const DynamicShape& from, const DynamicShape& to) {
    std::vector<int64_t> sizes;
    int64_t open = 0;
    for (size_t i = 0; i < to.size(); ++i) {
      const bool is_kept = i < from.size() && from[i] == to[i];
      if (to[i].is_constant()) {
        sizes.push_back(to[i].constant);
      } else if (is_kept) {
        sizes.push_back(0);
      } else {
        sizes.push_back(-1);
        ++open;
      }
    }
    return node("Reshape", {name, open > 1 ? list(to) : integers(sizes)});
  }
  void permute(std::vector<int64_t> order) {
    set(node("Transpose", {in(0)}, {{"perm", std::move(order)}}));
  }
  void transpose(int64_t first, int64_t second) {
    const auto rank = static_cast<int64_t>(input(0).shape.size());
    std::vector<int64_t> order;
    for (int64_t i = 0; i < rank; ++i) order.push_back(i);
    std::swap(order[static_cast<size_t>((first + rank) % rank)],
              order[static_cast<size_t>((second + rank) % rank)]);
    permute(order);
  }
  void slice(int64_t axis, const DynamicSize& first, const DynamicSize& end) {
    set(node("Slice", {in(0), size(first), size(end), integers({axis})}));
  }
  void narrow() {
    const DynamicSize& first = argument(2).integers.front();
    const DynamicSize& count = argument(3).integers.front();
    slice(integer(1), first,
          {.constant = first.constant + count.constant,
           .batch = first.batch + count.batch,
           .tokens = first.tokens + count.tokens,
           .cells = first.cells + count.cells,
           .squares = first.squares + count.squares});
  }
  void concatenate() {
    Names parts;
    for (const size_t number : argument(0).values) {
      const DynamicShape& shape = value(number).shape;
      const auto is_empty = [](const DynamicSize& one) { return one == DynamicSize{}; };
      if (std::ranges::any_of(shape, is_empty)) continue;
      parts.push_back(cast(name_of(number), value(number).type, result().type));
    }
    set(node("Concat", parts, {{"axis", has(1) ? integer(1) : 0}}));
  }
  void split() {
    Names parts;
    for (const size_t number : call_->results) {
      parts.push_back("v" + std::to_string(fresh_++));
      names_[number] = parts.back();
    }
    (void)node("Split", {in(0), list(argument(1).integers)}, {{"axis", integer(2)}}, parts);
  }
  // The mean or sum of some axes.
  void reduce(const char* op, bool axes_are_input) {
    const std::string x = typed(0, result().type);
    const int64_t keeps = truth(2);
    if (axes_are_input) {
      set(node(op, {x, integers(axes(1))}, {{"keepdims", keeps}}));
    } else {
      set(node(op, {x}, {{"axes", axes(1)}, {"keepdims", keeps}}));
    }
  }
  void any() {
    const std::string x = cast(in(0), input(0).type, at::kInt);
    const std::string most = node(
        "ReduceMax", {x}, {{"axes", std::vector<int64_t>{integer(1)}}, {"keepdims", truth(2)}});
    set(node("Cast", {most}, {{"to", onnx_type(at::kBool)}}));
  }
  void argmax() {
    const bool is_real = c10::isFloatingType(input(0).type);
    const std::string x = is_real ? in(0) : cast(in(0), input(0).type, at::kInt);
    set(node("ArgMax", {x}, {{"axis", integer(1)}, {"keepdims", truth(2)}}));
  }
  void cumulate() { set(node("CumSum", {typed(0, result().type), integer_scalar(integer(1))})); }
  void range(bool has_start) {
    const auto at_scalar = [&](size_t index) {
      const DynamicSize& form = argument(index).integers.front();
      if (form.is_constant()) return integer_scalar(form.constant);
      return node("Squeeze", {size(form), integers({0})});
    };
    FT_CHECK(result().type == at::kLong, "arange of integers");
    set(node("Range", {has_start ? at_scalar(0) : integer_scalar(0), at_scalar(has_start ? 1 : 0),
                       integer_scalar(1)}));
  }
  void fill(double number) {
    if (std::ranges::all_of(result().shape, &DynamicSize::is_constant)) {
      std::vector<int64_t> sizes;
      for (const DynamicSize& one : result().shape) sizes.push_back(one.constant);
      set(weights_.constant(at::full(sizes, number, at::TensorOptions(result().type))));
    } else {
      set(node("Expand", {scalar(number, result().type), list(result().shape)}));
    }
  }
  void gelu() {
    const std::string x = in(0);
    if (argument(1).text == "tanh") {
      const std::string cube = node("Mul", {node("Mul", {x, x}), x});
      const std::string sum = node("Add", {x, node("Mul", {cube, scalar(0.044715, at::kFloat)})});
      const double root = std::sqrt(2.0 / std::numbers::pi);
      const std::string t = node("Tanh", {node("Mul", {sum, scalar(root, at::kFloat)})});
      const std::string half = node("Mul", {x, scalar(0.5, at::kFloat)});
      return set(node("Mul", {half, node("Add", {t, scalar(1.0, at::kFloat)})}));
    }
    // In the form that onnxruntime fuses.
    const std::string erf =
        node("Erf", {node("Div", {x, scalar(std::numbers::sqrt2, at::kFloat)})});
    const std::string product = node("Mul", {x, node("Add", {erf, scalar(1.0, at::kFloat)})});
    set(node("Mul", {product, scalar(0.5, at::kFloat)}));
  }
  void layer_norm() {
    FT_CHECK(argument(1).integers.size() == 1, "a norm of one dimension");
    const int64_t size = argument(1).integers.front().constant;
    Names inputs = {in(0), has(2) ? in(2) : weights_.constant(at::ones({size}))};
    if (has(3)) inputs.push_back(in(3));
    set(node("LayerNormalization", inputs,
             {{"axis", int64_t{-1}}, {"epsilon", static_cast<float>(number(4))}}));
  }
  void attention() {
    FT_CHECK(!has(5) || truth(5) == 0, "attention without a causal rule");
    const double root = std::sqrt(static_cast<double>(input(0).shape.back().constant));
    const double scale = has(6) ? number(6) : 1.0 / root;
    const auto rank = static_cast<int64_t>(input(1).shape.size());
    std::vector<int64_t> order;
    for (int64_t i = 0; i < rank; ++i) order.push_back(i);
    std::swap(order[order.size() - 1], order[order.size() - 2]);
    const std::string keys = node("Transpose", {in(1)}, {{"perm", order}});
    const std::string query = node("Mul", {in(0), scalar(scale, at::kFloat)});
    std::string scores = node("MatMul", {query, keys});
    // Not infinite, so that no token of a text that is all padding has NaN; its values are 0, as
    // torch has them.
    const double lowest = std::numeric_limits<float>::lowest();
    if (has(3)) scores = node("Where", {in(3), scores, scalar(lowest, at::kFloat)});
    std::string shares = node("Softmax", {scores}, {{"axis", int64_t{-1}}});
    if (has(3)) shares = node("Where", {in(3), shares, scalar(0.0, at::kFloat)});
    set(node("MatMul", {shares, in(2)}));
  }

  // --- weights ---

  struct Uses {
    int64_t products = 0, others = 0;
    bool is_looked_up = false;
  };
  void count_uses(const RecordedCall& call) {
    for (size_t i = 0; i < call.arguments.size(); ++i) {
      for (const size_t number : call.arguments[i].values) {
        if (graph_.values[number].parameter.empty()) continue;
        Uses& uses = uses_[number];
        const bool is_product = call.name == "aten::linear" && i == 1;
        const bool is_lookup = call.name == "aten::embedding" && i == 0;
        uses.products += is_product ? 1 : 0;
        uses.others += is_product ? 0 : 1;
        uses.is_looked_up = uses.is_looked_up || is_lookup;
      }
    }
  }
  // The type of a weight that only products and look-ups read; else float32.
  [[nodiscard]] OnnxWeights type_of(size_t number, const MergedTensor& tensor) const {
    const Uses& uses = uses_.at(number);
    if (uses.others > (uses.is_looked_up ? 1 : 0)) return OnnxWeights::kFloat32;
    return weights_.type_of(tensor);
  }
  void embedding() {
    const size_t number = argument(0).values.front();
    const std::string ids = in(1);
    if (value(number).parameter.empty()) {
      return set(node("Gather", {in(0), ids}, {{"axis", int64_t{0}}}));
    }
    const MergedTensor& tensor = weights_.of(value(number).parameter);
    const OnnxWeights type = type_of(number, tensor);
    const std::string rows =
        node("Gather", {weights_.matrix(tensor, type, false), ids}, {{"axis", int64_t{0}}});
    if (type == OnnxWeights::kFloat32) return set(rows);
    std::string wide = node("Cast", {rows}, {{"to", onnx_type(at::kFloat)}});
    if (type == OnnxWeights::kInt8) {
      const std::string scales =
          node("Gather", {weights_.scales(tensor, true), ids}, {{"axis", int64_t{0}}});
      wide = node("Mul", {wide, scales});
    }
    set(wide);
  }
  void linear() {
    const size_t number = argument(1).values.front();
    const std::string x = in(0);
    std::string y;
    if (value(number).parameter.empty()) {
      y = node("MatMul", {x, node("Transpose", {in(1)}, {{"perm", std::vector<int64_t>{1, 0}}})});
    } else {
      y = product(x, number, weights_.of(value(number).parameter));
    }
    set(has(2) ? node("Add", {y, in(2)}) : y);
  }
  // x W^T
  std::string product(const std::string& x, size_t number, const MergedTensor& tensor) {
    const OnnxWeights type = type_of(number, tensor);
    // A weight that is looked up, too, is in the file once.
    const bool is_shared = uses_.at(number).others > 0;
    std::string matrix = weights_.matrix(tensor, type, !is_shared);
    if (is_shared) {
      matrix = node("Transpose", {matrix}, {{"perm", std::vector<int64_t>{1, 0}}});
    }
    if (type == OnnxWeights::kFloat32) return node("MatMul", {x, matrix});
    if (type == OnnxWeights::kFloat16) {
      std::string& half = halves_[x];
      if (half.empty()) half = node("Cast", {x}, {{"to", onnx_type(at::kHalf)}});
      return node("Cast", {node("MatMul", {half, matrix})}, {{"to", onnx_type(at::kFloat)}});
    }
    Names& codes = codes_[x];  // of values, their scale and their zero
    if (codes.empty()) {
      for (int i = 0; i < 3; ++i) codes.push_back("v" + std::to_string(fresh_++));
      (void)node("DynamicQuantizeLinear", {x}, {}, codes);
    }
    if (zero_.empty()) zero_ = weights_.constant(at::zeros({}, at::TensorOptions(at::kChar)));
    const std::string sums = node("MatMulInteger", {codes[0], matrix, codes[2], zero_});
    const std::string scale = node("Mul", {codes[1], weights_.scales(tensor, false)});
    return node("Mul", {node("Cast", {sums}, {{"to", onnx_type(at::kFloat)}}), scale});
  }

  const RecordedGraph& graph_;
  Weights weights_;
  std::map<size_t, Uses> uses_;
  const RecordedCall* call_ = nullptr;
  Names names_;  // of values
  std::vector<OnnxNode> nodes_;
  std::map<std::vector<int64_t>, std::string> integers_;
  std::map<std::pair<double, at::ScalarType>, std::string> scalars_;
  std::vector<std::pair<DynamicSize, std::string>> sizes_;
  std::map<std::string, std::string> halves_;
  std::map<std::string, Names> codes_;
  std::string batch_, tokens_, zero_;
  int64_t fresh_ = 0;
};

const std::map<std::string, Converter::Operator>& Converter::operators() {
  const auto unary = [](const char* op) { return [op](Converter& c) { c.unary(op); }; };
  const auto binary = [](const char* op) { return [op](Converter& c) { c.binary(op); }; };
  const auto compare = [](const char* op) { return [op](Converter& c) { c.compare(op); }; };
  const auto differs = [](Converter& c) { c.compare("Equal", true); };
  const auto reshape = [](Converter& c) { c.reshape(); };
  const auto convert = [](Converter& c) { c.set(c.typed(0, c.result().type)); };
  const auto select = [](Converter& c) {
    c.set(c.node("Gather", {c.in(0), c.integer_scalar(c.integer(2))}, {{"axis", c.integer(1)}}));
  };
  const auto choose = [](Converter& c) {
    const at::ScalarType type = c.result().type;
    c.set(c.node("Where", {c.in(0), c.typed(1, type), c.typed(2, type)}));
  };
  const auto clamp = [](Converter& c) {
    const at::ScalarType type = c.result().type;
    std::string x = c.typed(0, type);
    if (c.has(1)) x = c.node("Max", {x, c.typed(1, type)});
    if (c.has(2)) x = c.node("Min", {x, c.typed(2, type)});
    c.set(x);
  };
  static const std::map<std::string, Operator> kOperators = {
      {"aten::abs", unary("Abs")},
      {"aten::add.Scalar", binary("Add")},
      {"aten::add.Tensor", binary("Add")},
      {"aten::any.dim", [](Converter& c) { c.any(); }},
      {"aten::arange", [](Converter& c) { c.range(false); }},
      {"aten::arange.start", [](Converter& c) { c.range(true); }},
      {"aten::argmax", [](Converter& c) { c.argmax(); }},
      {"aten::cat", [](Converter& c) { c.concatenate(); }},
      {"aten::clamp", clamp},
      {"aten::clamp_max", [](Converter& c) { c.binary("Min"); }},
      {"aten::clamp_min", clamp},
      {"aten::contiguous", convert},
      {"aten::cos", unary("Cos")},
      {"aten::cumsum", [](Converter& c) { c.cumulate(); }},
      {"aten::detach", convert},
      {"aten::div.Scalar", binary("Div")},
      {"aten::div.Tensor", binary("Div")},
      {"aten::embedding", [](Converter& c) { c.embedding(); }},
      {"aten::eq.Scalar", compare("Equal")},
      {"aten::eq.Tensor", compare("Equal")},
      {"aten::exp", unary("Exp")},
      {"aten::expand",
       [](Converter& c) {
         c.set(c.node("Expand", {c.in(0), c.list(c.result().shape)}));
       }},
      {"aten::expand_as",
       [](Converter& c) {
         c.set(c.node("Expand", {c.in(0), c.list(c.result().shape)}));
       }},
      {"aten::flatten.using_ints", reshape},
      {"aten::expm1",
       [](Converter& c) {
         c.set(c.node("Sub", {c.node("Exp", {c.in(0)}), c.scalar(1.0, at::kFloat)}));
       }},
      {"aten::floor", unary("Floor")},
      {"aten::gather",
       [](Converter& c) {
         c.set(c.node("GatherElements", {c.in(0), c.in(2)}, {{"axis", c.integer(1)}}));
       }},
      {"aten::ge.Scalar", compare("GreaterOrEqual")},
      {"aten::gelu", [](Converter& c) { c.gelu(); }},
      {"aten::gt.Scalar", compare("Greater")},
      {"aten::index_select",
       [](Converter& c) {
         c.set(c.node("Gather", {c.in(0), c.in(2)}, {{"axis", c.integer(1)}}));
       }},
      {"aten::layer_norm", [](Converter& c) { c.layer_norm(); }},
      {"aten::le.Scalar", compare("LessOrEqual")},
      {"aten::le.Tensor", compare("LessOrEqual")},
      {"aten::linalg_vector_norm",
       [](Converter& c) {
         FT_CHECK(c.number(1) == 2.0, "the norm of squares");
         c.set(c.node("ReduceL2", {c.in(0)}, {{"axes", c.axes(2)}, {"keepdims", c.truth(3)}}));
       }},
      {"aten::linear", [](Converter& c) { c.linear(); }},
      {"aten::log", unary("Log")},
      {"aten::logical_and", binary("And")},
      {"aten::logical_not", [](Converter& c) { c.set(c.node("Not", {c.typed(0, at::kBool)})); }},
      {"aten::lt.Scalar", compare("Less")},
      {"aten::masked_fill.Scalar",
       [](Converter& c) {
         const at::ScalarType type = c.result().type;
         c.set(c.node("Where", {c.in(1), c.typed(2, type), c.in(0)}));
       }},
      {"aten::matmul", binary("MatMul")},
      {"aten::mean.dim", [](Converter& c) { c.reduce("ReduceMean", false); }},
      {"aten::mul.Scalar", binary("Mul")},
      {"aten::mul.Tensor", binary("Mul")},
      {"aten::narrow", [](Converter& c) { c.narrow(); }},
      {"aten::ne.Scalar", differs},
      {"aten::neg", unary("Neg")},
      {"aten::outer",
       [](Converter& c) {
         const std::string rows = c.node("Unsqueeze", {c.in(0), c.integers({1})});
         c.set(c.node("Mul", {rows, c.in(1)}));
       }},
      {"aten::permute", [](Converter& c) { c.permute(c.axes(1)); }},
      {"aten::relu", unary("Relu")},
      {"aten::rsqrt",
       [](Converter& c) { c.set(c.node("Reciprocal", {c.node("Sqrt", {c.in(0)})})); }},
      {"aten::scaled_dot_product_attention", [](Converter& c) { c.attention(); }},
      {"aten::select.int", select},
      {"aten::sigmoid", unary("Sigmoid")},
      {"aten::silu",
       [](Converter& c) {
         c.set(c.node("Mul", {c.in(0), c.node("Sigmoid", {c.in(0)})}));
       }},
      {"aten::sin", unary("Sin")},
      {"aten::slice.Tensor",
       [](Converter& c) {
         c.slice(c.integer(1), c.argument(2).integers.front(), c.argument(3).integers.front());
       }},
      {"aten::softmax.int",
       [](Converter& c) {
         c.set(c.node("Softmax", {c.typed(0, c.result().type)}, {{"axis", c.integer(1)}}));
       }},
      {"aten::softplus",
       [](Converter& c) {
         FT_CHECK(c.number(1) == 1.0, "softplus without a factor");
         c.unary("Softplus");
       }},
      {"aten::split_with_sizes", [](Converter& c) { c.split(); }},
      {"aten::sqrt", unary("Sqrt")},
      {"aten::square",
       [](Converter& c) {
         c.set(c.node("Mul", {c.in(0), c.in(0)}));
       }},
      {"aten::squeeze.dim", reshape},
      {"aten::sub.Scalar", binary("Sub")},
      {"aten::sub.Tensor", binary("Sub")},
      {"aten::sum.dim_IntList", [](Converter& c) { c.reduce("ReduceSum", true); }},
      {"aten::t", [](Converter& c) { c.transpose(0, 1); }},
      {"aten::tanh", unary("Tanh")},
      {"aten::to.device", convert},
      {"aten::to.dtype", convert},
      {"aten::to.dtype_layout", convert},
      {"aten::transpose.int", [](Converter& c) { c.transpose(c.integer(1), c.integer(2)); }},
      {"aten::unflatten.int", reshape},
      {"aten::unsqueeze", reshape},
      {"aten::view", reshape},
      {"aten::where.ScalarOther", choose},
      {"aten::where.self", choose},
      {"aten::zeros", [](Converter& c) { c.fill(0.0); }},
  };
  return kOperators;
}

}  // namespace

std::string scales_name(const std::string& weight, bool is_column) {
  return weight + (is_column ? ".scale_column" : ".scale");
}

OnnxModel onnx_graph(const RecordedGraph& graph, const OnnxNames& names, const MergedModel& weights,
                     OnnxWeights type) {
  return Converter(graph, names, weights, type).convert(names);
}

}  // namespace finetune
