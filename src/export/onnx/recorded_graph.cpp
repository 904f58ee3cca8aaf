// SPDX-License-Identifier: MIT
#include "export/onnx/recorded_graph.h"

#include <ATen/ExpandUtils.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/result_type.h>
#include <c10/core/GradMode.h>
#include <c10/core/WrapDimMinimal.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>

#include "finetune/base/error.h"
#include "finetune/base/text.h"

namespace finetune {
namespace {

using c10::IValue;
using Kind = RecordedArgument::Kind;

// A key that no tensor has and no program uses: it comes before autograd and all devices.
constexpr auto kRecordingKey = c10::DispatchKey::TESTING_ONLY_GenericMode;

constexpr size_t kPasses = 4;

struct Lengths {
  int64_t batch, tokens;
};

// A tensor or a list of them by their numbers, or another value.
struct Argument {
  Kind kind = Kind::kNone;  // kValue, kValues; else `other`
  std::vector<size_t> numbers = {};
  IValue other = {};
};

// One pass for one (B, T): what a call got and returned.
struct Call {
  std::string name;
  std::vector<Argument> arguments;
  std::vector<size_t> results;
};

// Tensors stay alive, so that no address means two of them.
class Trace {
 public:
  size_t add(const Tensor& tensor) {
    const auto [found, is_new] = numbers_.try_emplace(tensor.unsafeGetTensorImpl(), tensors.size());
    if (is_new) tensors.push_back(tensor);
    return found->second;
  }
  // A tensor that was changed in place is a new value; views of its old one would not see that.
  size_t replace(const Tensor& tensor, const std::string& by) {
    const auto* storage = tensor.storage().unsafeGetStorageImpl();
    for (const Tensor& other : tensors) {
      if (other.is_meta() && other.storage().unsafeGetStorageImpl() == storage &&
          other.unsafeGetTensorImpl() != tensor.unsafeGetTensorImpl()) {
        throw Error(ErrorKind::kData, by + " changes a view in place");
      }
    }
    numbers_[tensor.unsafeGetTensorImpl()] = tensors.size();
    tensors.push_back(tensor);
    return tensors.size() - 1;
  }
  [[nodiscard]] std::optional<size_t> find(const Tensor& tensor) const {
    const auto found = numbers_.find(tensor.unsafeGetTensorImpl());
    return found == numbers_.end() ? std::nullopt : std::optional(found->second);
  }

  std::vector<Tensor> tensors;
  std::vector<DynamicShape> shapes;
  std::vector<Call> calls;
  std::vector<size_t> inputs, outputs;

 private:
  std::map<const c10::TensorImpl*, size_t> numbers_;
};

thread_local Trace* recording = nullptr;

std::vector<Tensor> tensors_of(const std::vector<IValue>& values) {
  std::vector<Tensor> tensors;
  for (const IValue& value : values) {
    if (value.isTensor()) tensors.push_back(value.toTensor());
    if (value.isTensorList()) {
      for (const Tensor& one : value.toTensorVector()) tensors.push_back(one);
    }
  }
  return tensors;
}

// torch has the meta kernels of these operators in Python alone.
Tensor selected_rows(const Tensor& x, int64_t dim, const Tensor& index) {
  std::vector<int64_t> shape = x.sizes().vec();
  shape[static_cast<size_t>(c10::maybe_wrap_dim(dim, x.dim()))] = index.numel();
  return at::empty(shape, x.options());
}

std::tuple<Tensor, Tensor, Tensor> normed(const Tensor& x, c10::SymIntArrayRef /*shape*/,
                                          const std::optional<Tensor>& /*weight*/,
                                          const std::optional<Tensor>& /*bias*/,
                                          double /*epsilon*/) {
  const Tensor statistics = at::empty({x.numel() / x.size(-1)}, x.options());
  return {at::empty_like(x), statistics, statistics};
}

Tensor both(const Tensor& x, const Tensor& y) {
  return at::empty(at::infer_size(x.sizes(), y.sizes()), x.options().dtype(at::kBool));
}

Tensor chosen(const Tensor& condition, const Tensor& x, const Tensor& y) {
  const auto shape = at::infer_size(condition.sizes(), at::infer_size(x.sizes(), y.sizes()));
  return at::empty(shape, condition.options().dtype(at::result_type(x, y)));
}

Tensor& chosen_into(const Tensor& condition, const Tensor& x, const Tensor& y, Tensor& out) {
  out.resize_(chosen(condition, x, y).sizes());
  return out;
}

Tensor shaped_like(const Tensor& x) { return at::empty_like(x); }

Tensor negated(const Tensor& x) { return at::empty_like(x, x.options().dtype(at::kBool)); }

// What the key runs instead of every operator: it records the call, after the operator itself.
// Calls within it are its parts.
void record_call(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard inner(kRecordingKey);
  const auto arguments = torch::jit::last(*stack, op.schema().arguments().size()).vec();
  op.callBoxed(stack);
  if (recording == nullptr) return;
  Trace& trace = *recording;
  const std::vector<Tensor> results =
      tensors_of(torch::jit::last(*stack, op.schema().returns().size()).vec());
  // Constants are computed on the CPU.
  if (std::ranges::none_of(results, [](const Tensor& one) { return one.is_meta(); })) return;
  const c10::OperatorName& name = op.operator_name();
  Call call = {.name = name.name, .arguments = {}, .results = {}};
  const bool is_in_place = name.name.ends_with('_') && !name.name.ends_with("__");
  if (!name.overload_name.empty()) call.name += "." + name.overload_name;
  for (const IValue& value : arguments) {
    Argument argument;
    if (value.isTensor() && value.toTensor().defined()) {
      argument = {.kind = Kind::kValue, .numbers = {trace.add(value.toTensor())}};
    } else if (value.isTensorList()) {
      argument.kind = Kind::kValues;
      for (const Tensor& one : value.toTensorVector()) argument.numbers.push_back(trace.add(one));
    } else if (!value.isTensor()) {
      argument.other = value;
    }
    call.arguments.push_back(std::move(argument));
  }
  bool is_new = false;
  for (const Tensor& result : results) {
    is_new = is_new || is_in_place || !trace.find(result);
    call.results.push_back(is_in_place ? trace.replace(result, call.name) : trace.add(result));
  }
  if (is_new) trace.calls.push_back(std::move(call));  // else it returned its argument
}

class RecordingScope {
 public:
  explicit RecordingScope(Trace& trace)
      : all_(torch::Library::IMPL, "_", kRecordingKey, __FILE__, __LINE__),
        meta_(torch::Library::IMPL, "aten", c10::DispatchKey::Meta, __FILE__, __LINE__),
        included_(kRecordingKey) {
    all_.fallback(torch::CppFunction::makeFromBoxedFunction<&record_call>());
    for (const char* name : {"abs", "relu"}) meta_.impl(name, &shaped_like);
    meta_.impl("index_select", &selected_rows);
    meta_.impl("native_layer_norm", &normed);
    meta_.impl("logical_and", &both);
    meta_.impl("logical_not", &negated);
    meta_.impl("where.self", &chosen);
    meta_.impl("where.self_out", &chosen_into);
    recording = &trace;
  }
  RecordingScope(const RecordingScope&) = delete;
  RecordingScope& operator=(const RecordingScope&) = delete;
  ~RecordingScope() { recording = nullptr; }

 private:
  torch::Library all_, meta_;
  c10::impl::IncludeDispatchKeyGuard included_;
};

Trace trace_pass(const RecordedPass& pass, const Lengths& lengths) {
  const c10::NoGradGuard no_grad;
  Trace trace;
  for (const NamedTensor& parameter : pass.parameters) (void)trace.add(parameter.tensor);
  const std::vector<Tensor> inputs = pass.inputs(lengths.batch, lengths.tokens);
  for (const Tensor& input : inputs) trace.inputs.push_back(trace.add(input));
  std::vector<Tensor> outputs;
  {
    const RecordingScope scope(trace);
    outputs = pass.run(inputs);
  }
  for (const Tensor& output : outputs) trace.outputs.push_back(trace.add(output));
  return trace;
}

// The passes together.
class Merged {
 public:
  Merged(const std::array<Trace, kPasses>& traces, const std::array<Lengths, kPasses>& lengths)
      : traces_(traces), lengths_(lengths) {}

  RecordedGraph graph(const RecordedPass& pass) {
    const Trace& first = traces_[0];
    for (const Trace& other : traces_) {
      if (other.calls.size() != first.calls.size() || other.outputs != first.outputs ||
          other.tensors.size() != first.tensors.size()) {
        refuse("the number of its operators");
      }
    }
    RecordedGraph graph;
    graph.inputs = first.inputs;
    graph.outputs = first.outputs;
    for (size_t i = 0; i < first.tensors.size(); ++i) graph.values.push_back(value(i));
    for (size_t i = 0; i < pass.parameters.size(); ++i) {
      graph.values[i].parameter = pass.parameters[i].name;
    }
    for (size_t i = 0; i < first.calls.size(); ++i) graph.calls.push_back(call(i));
    return graph;
  }

 private:
  [[noreturn]] static void refuse(const std::string& what) {
    throw Error(ErrorKind::kData,
                what + " depends on the length of the text in a way that no graph of ONNX has");
  }

  DynamicSize size(const std::array<int64_t, kPasses>& values, const std::string& what) const {
    const auto fits = [&](const DynamicSize& form) {
      for (size_t i = 0; i < kPasses; ++i) {
        const auto [b, t] = lengths_[i];
        const int64_t value = form.constant + form.batch * b + form.tokens * t +
                              form.cells * b * t + form.squares * t * t;
        if (value != values[i]) return false;
      }
      return true;
    };
    DynamicSize form = {.constant = values[0]};
    if (fits(form)) return form;
    const auto try_form = [&](int64_t DynamicSize::*factor, const auto& number) {
      const int64_t difference = number(lengths_[1]) - number(lengths_[0]);
      form = {};
      form.*factor = (values[1] - values[0]) / difference;
      form.constant = values[0] - form.*factor * number(lengths_[0]);
      return fits(form);
    };
    if (try_form(&DynamicSize::tokens, [](const Lengths& l) { return l.tokens; }) ||
        try_form(&DynamicSize::batch, [](const Lengths& l) { return l.batch; }) ||
        try_form(&DynamicSize::cells, [](const Lengths& l) { return l.batch * l.tokens; }) ||
        try_form(&DynamicSize::squares, [](const Lengths& l) { return l.tokens * l.tokens; })) {
      return form;
    }
    refuse(what);
  }

  RecordedValue value(size_t number) const {
    const Tensor& first = traces_[0].tensors[number];
    RecordedValue value{.type = first.scalar_type(), .shape = {}};
    for (const Trace& trace : traces_) {
      const Tensor& other = trace.tensors[number];
      if (other.dim() != first.dim() || other.scalar_type() != first.scalar_type() ||
          other.is_meta() != first.is_meta()) {
        refuse("the shape of a tensor");
      }
      if (!first.is_meta() && !at::equal(first, other)) refuse("a table");
    }
    if (!first.is_meta()) value.constant = first;
    for (int64_t d = 0; d < first.dim(); ++d) {
      std::array<int64_t, kPasses> sizes{};
      for (size_t i = 0; i < kPasses; ++i) sizes[i] = traces_[i].tensors[number].size(d);
      value.shape.push_back(size(sizes, "a size"));
    }
    return value;
  }

  RecordedCall call(size_t index) const {
    const Call& first = traces_[0].calls[index];
    RecordedCall call{.name = first.name, .arguments = {}, .results = first.results};
    for (const Trace& trace : traces_) {
      const Call& other = trace.calls[index];
      if (other.name != first.name || other.results != first.results ||
          other.arguments.size() != first.arguments.size()) {
        refuse("the order of its operators (" + first.name + ", " + other.name + ")");
      }
    }
    for (size_t i = 0; i < first.arguments.size(); ++i) {
      std::array<const Argument*, kPasses> all{};
      for (size_t j = 0; j < kPasses; ++j) all[j] = &traces_[j].calls[index].arguments[i];
      call.arguments.push_back(argument(all, first.name));
    }
    return call;
  }

  RecordedArgument argument(const std::array<const Argument*, kPasses>& all,
                            const std::string& name) const {
    const std::string what = "an argument of " + name;
    const Argument& tensors = *all[0];
    for (const Argument* other : all) {
      if (other->kind != tensors.kind || other->numbers != tensors.numbers) refuse(what);
    }
    if (tensors.kind != Kind::kNone) return {.kind = tensors.kind, .values = tensors.numbers};
    const IValue& first = tensors.other;
    const auto integer = [&](const auto& of) {
      std::array<int64_t, kPasses> values{};
      for (size_t i = 0; i < kPasses; ++i) values[i] = of(all[i]->other);
      return size(values, what);
    };
    if (first.isInt()) {
      return {.kind = Kind::kInteger,
              .integers = {integer([](const IValue& one) { return one.toInt(); })}};
    }
    if (first.isIntList()) {
      RecordedArgument list{.kind = Kind::kIntegers};
      for (const Argument* one : all) {
        const IValue& other = one->other;
        if (!other.isIntList() || other.toIntVector().size() != first.toIntVector().size()) {
          refuse(what);
        }
      }
      for (size_t i = 0; i < first.toIntVector().size(); ++i) {
        list.integers.push_back(integer([i](const IValue& one) { return one.toIntVector()[i]; }));
      }
      return list;
    }
    if (first.isNone()) return {};
    for (const Argument* other : all) {
      if (!(other->other == first)) refuse(what);
    }
    if (first.isDouble()) return {.kind = Kind::kNumber, .number = first.toDouble()};
    if (first.isBool()) return {.kind = Kind::kTruth, .truth = first.toBool()};
    return {.kind = Kind::kText, .text = first.isString() ? first.toStringRef() : c10::str(first)};
  }

  const std::array<Trace, kPasses>& traces_;
  const std::array<Lengths, kPasses>& lengths_;
};

}  // namespace

RecordedGraph record_graph(const RecordedPass& pass) {
  const int64_t most = pass.most_tokens;
  if (most < 5) throw Error(ErrorKind::kData, "it reads fewer than 5 tokens");
  const int64_t longest = std::min<int64_t>(most, 12);
  // T is no linear function of B, and one is the longest text: RoPE may change on the way.
  const std::array<Lengths, kPasses> lengths = {{{.batch = 2, .tokens = longest},
                                                 {.batch = 3, .tokens = longest - 3},
                                                 {.batch = 5, .tokens = longest - 1},
                                                 {.batch = 7, .tokens = most}}};
  std::array<Trace, kPasses> traces;
  for (size_t i = 0; i < kPasses; ++i) traces[i] = trace_pass(pass, lengths[i]);
  return Merged(traces, lengths).graph(pass);
}

}  // namespace finetune
