// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "finetune/base/file_system.h"
#include "finetune/tensor/finite.h"
#include "finetune/tensor/lazy_tensor.h"
#include "finetune/tensor/tensor.h"

// Files of Python's torch.save (optimizer.pt, scheduler.pt, pytorch_model.bin): a zip archive with
// a pickle or, before torch 1.6, a sequence of pickles followed by the data (read only). Files are
// written so that torch.load(weights_only=True) reads them. The reader supports plain containers
// and tensors and never executes anything.
namespace finetune {

class TorchValue;
using TorchKey = std::variant<int64_t, std::string>;
using TorchList = std::vector<TorchValue>;
struct TorchTuple {
  std::vector<TorchValue> items;
};
// Keys keep their order. Also represents OrderedDict, whose attributes are dropped.
struct TorchDict {
  std::vector<std::pair<TorchKey, TorchValue>> items;

  void set(TorchKey key, TorchValue value);  // appends; Requires: a new key
};

class TorchFile;

// A tensor of an opened file; its data is read on demand.
class StoredTensor {
 public:
  [[nodiscard]] at::ScalarType scalar_type() const { return type_; }
  [[nodiscard]] const std::vector<int64_t>& sizes() const { return sizes_; }

  // Reads into new CPU memory: check the sizes first.
  [[nodiscard]] Tensor read() const;
  // Overwrites the values of `target`, which keeps its device and type. Makes no second copy if
  // both types are equal. Requires: equal sizes; convertible types.
  void read_into(const Tensor& target) const;

 private:
  friend class TorchFile;

  std::shared_ptr<const TorchFile> file_;
  size_t tensor_ = 0;
  at::ScalarType type_ = at::kFloat;
  std::vector<int64_t> sizes_;
};

// One Python value.
class TorchValue {
 public:
  TorchValue() = default;  // None
  TorchValue(bool value) : value_(value) {}
  TorchValue(int64_t value) : value_(value) {}
  TorchValue(int value) : value_(int64_t{value}) {}
  TorchValue(double value) : value_(value) {}
  TorchValue(std::string value) : value_(std::move(value)) {}
  TorchValue(const char* value) : value_(std::string(value)) {}
  TorchValue(TorchList value) : value_(std::move(value)) {}
  TorchValue(TorchTuple value) : value_(std::move(value)) {}
  TorchValue(TorchDict value) : value_(std::move(value)) {}
  TorchValue(Tensor value) : value_(std::move(value)) {}
  TorchValue(StoredTensor value) : value_(std::move(value)) {}
  // For writing only; the tensor's name is unused.
  TorchValue(LazyTensor value) : value_(std::move(value)) {}

  [[nodiscard]] bool is_none() const { return holds<std::monostate>(); }
  [[nodiscard]] bool is_bool() const { return holds<bool>(); }
  [[nodiscard]] bool is_int() const { return holds<int64_t>(); }
  [[nodiscard]] bool is_double() const { return holds<double>(); }
  [[nodiscard]] bool is_string() const { return holds<std::string>(); }
  [[nodiscard]] bool is_sequence() const { return holds<TorchList>() || holds<TorchTuple>(); }
  [[nodiscard]] bool is_dict() const { return holds<TorchDict>(); }
  [[nodiscard]] bool is_tensor() const { return holds<Tensor>(); }
  [[nodiscard]] bool is_stored_tensor() const { return holds<StoredTensor>(); }

  // Each throws Error(kData) for other types: "found a string where a number was expected".
  [[nodiscard]] bool as_bool() const;
  [[nodiscard]] int64_t as_int() const;
  [[nodiscard]] double as_double() const;  // accepts integers too
  [[nodiscard]] const std::string& as_string() const;
  [[nodiscard]] const std::vector<TorchValue>& as_sequence() const;  // list or tuple
  [[nodiscard]] const TorchDict& as_dict() const;
  [[nodiscard]] const Tensor& as_tensor() const;
  [[nodiscard]] const StoredTensor& as_stored_tensor() const;

  // Look up a dictionary's key: find() returns nullptr if it is missing, at() throws Error(kData).
  [[nodiscard]] const TorchValue* find(const TorchKey& key) const;
  [[nodiscard]] const TorchValue& at(const TorchKey& key) const;

  using Variant = std::variant<std::monostate, bool, int64_t, double, std::string, TorchList,
                               TorchTuple, TorchDict, Tensor, StoredTensor, LazyTensor>;
  [[nodiscard]] const Variant& variant() const { return value_; }

 private:
  template <class T>
  [[nodiscard]] bool holds() const {
    return std::holds_alternative<T>(value_);
  }

  Variant value_;
};

// Writes a complete file; neither syncs nor closes it. Tensors may be on any device and are copied
// to the host some MiB at a time; each is written contiguously with its own storage. Equal input
// gives equal bytes. With Numbers::kFinite, NaN or Inf is Error(kData). Requires: no StoredTensor.
void write_torch_file(WritableFile& file, const TorchValue& value,
                      Numbers numbers = Numbers::kFinite);

// Reads a complete file; tensors are on the CPU and share memory as they did when saved. Throws
// Error(kData) with path and reason for unknown, truncated, corrupt or hostile content.
[[nodiscard]] TorchValue read_torch_file(FileSystem& files, const std::string& path);

// The same, but every tensor is a StoredTensor: only the descriptions of tensors are read.
[[nodiscard]] TorchValue open_torch_file(FileSystem& files, const std::string& path);

}  // namespace finetune
