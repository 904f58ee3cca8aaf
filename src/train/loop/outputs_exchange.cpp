// SPDX-License-Identifier: MIT
#include "train/loop/outputs_exchange.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <cstring>
#include <exception>
#include <new>

#include "finetune/base/error.h"
#include "finetune/tensor/out_of_memory.h"

namespace finetune {
namespace {

constexpr char kNothing = 'n';
constexpr char kOutputs = 'o';
constexpr char kStop = 's';
constexpr char kNoMemory = 'm';

class Bytes {
 public:
  template <class Number>
  void put(Number number) {
    bytes_.append(reinterpret_cast<const char*>(&number), sizeof(number));
  }
  void put_tensor(const Tensor& tensor) {
    put<int64_t>(tensor.defined() ? tensor.dim() : -1);
    if (!tensor.defined()) return;
    const Tensor host = tensor.to(at::kCPU).contiguous();
    put<int8_t>(static_cast<int8_t>(host.scalar_type()));
    for (const int64_t size : host.sizes()) put(size);
    bytes_.append(static_cast<const char*>(host.const_data_ptr()), host.nbytes());
  }
  [[nodiscard]] std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class Reader {
 public:
  explicit Reader(const std::string& bytes) : bytes_(bytes) {}

  template <class Number>
  Number get() {
    Number number = {};
    std::memcpy(&number, take(sizeof(number)), sizeof(number));
    return number;
  }
  Tensor get_tensor() {
    const auto dimensions = get<int64_t>();
    if (dimensions < 0) return {};
    const auto type = static_cast<at::ScalarType>(get<int8_t>());
    std::vector<int64_t> sizes;
    for (int64_t i = 0; i < dimensions; ++i) sizes.push_back(get<int64_t>());
    const Tensor tensor = at::empty(sizes, type);
    std::memcpy(tensor.mutable_data_ptr(), take(tensor.nbytes()), tensor.nbytes());
    return tensor;
  }

 private:
  const char* take(size_t size) {
    FT_CHECK(at_ + size <= bytes_.size(), "a message between processes is whole");
    const char* begin = bytes_.data() + at_;
    at_ += size;
    return begin;
  }

  const std::string& bytes_;
  size_t at_ = 0;
};

}  // namespace

std::string OutputsExchange::to_bytes(const Outputs& outputs, bool best_alone) {
  Bytes bytes;
  bytes.put(outputs.loss);
  bytes.put(outputs.targets);
  bytes.put(outputs.entropy);
  for (const auto* means : {&outputs.terms, &outputs.measures}) {
    bytes.put(static_cast<int64_t>(means->size()));
    for (const Outputs::TermMean& term : *means) {
      bytes.put(term.mean);
      bytes.put(term.targets);
    }
  }
  const bool has_best = best_alone && outputs.logits.defined();
  bytes.put_tensor(has_best ? Tensor() : outputs.logits);
  bytes.put_tensor(outputs.next_sentence_logits);
  bytes.put_tensor(has_best ? outputs.logits.argmax(-1) : outputs.best);
  return bytes.take();
}

Outputs OutputsExchange::from_bytes(const std::string& text) {
  Reader reader(text);
  Outputs outputs;
  outputs.loss = reader.get<double>();
  outputs.targets = reader.get<int64_t>();
  outputs.entropy = reader.get<double>();
  for (auto* means : {&outputs.terms, &outputs.measures}) {
    means->resize(static_cast<size_t>(reader.get<int64_t>()));
    for (Outputs::TermMean& term : *means) {
      term.mean = reader.get<double>();
      term.targets = reader.get<int64_t>();
    }
  }
  outputs.logits = reader.get_tensor();
  outputs.next_sentence_logits = reader.get_tensor();
  outputs.best = reader.get_tensor();
  return outputs;
}

std::optional<std::vector<Outputs>> OutputsExchange::share(
    bool has_batch, const std::function<std::vector<Outputs>()>& compute, bool stops,
    ParameterExchange* parameters) const {
  if (world_.size() == 1) {
    if (stops) return std::nullopt;
    return compute();
  }
  std::string mine(1, stops ? kStop : kNothing);
  std::exception_ptr lack_of_memory;
  if (has_batch && !stops) {
    try {
      mine = kOutputs;
      for (const Outputs& outputs : compute()) {
        const std::string bytes = to_bytes(outputs, best_alone_);
        Bytes length;
        length.put(static_cast<int64_t>(bytes.size()));
        mine += length.take() + bytes;
      }
    } catch (...) {
      lack_of_memory = std::current_exception();
      if (!is_lack_of_memory(lack_of_memory)) throw;
      mine = kNoMemory;
    }
  }
  if (parameters != nullptr) parameters->take_part(1);
  const std::vector<std::string> all = world_.gather(mine);
  std::vector<Outputs> result;
  for (const std::string& one : all) {
    FT_CHECK(!one.empty(), "every process says something");
    if (one[0] == kStop) return std::nullopt;
    if (one[0] == kNoMemory && !lack_of_memory) throw std::bad_alloc();
    for (size_t at = 1; one[0] == kOutputs && at < one.size();) {
      int64_t length = 0;
      FT_CHECK(at + sizeof(length) <= one.size(), "outputs of several batches");
      std::memcpy(&length, one.data() + at, sizeof(length));
      at += sizeof(length);
      result.push_back(from_bytes(one.substr(at, static_cast<size_t>(length))));
      at += static_cast<size_t>(length);
    }
  }
  if (lack_of_memory) std::rethrow_exception(lack_of_memory);
  return result;
}

}  // namespace finetune
