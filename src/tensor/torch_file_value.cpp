// SPDX-License-Identifier: MIT
#include <algorithm>
#include <array>

#include "finetune/base/error.h"
#include "finetune/tensor/torch_file.h"

namespace finetune {
namespace {

constexpr std::array<const char*, 10> kNames = {
    "None",   "a boolean", "an integer",   "a number", "a string",
    "a list", "a tuple",   "a dictionary", "a tensor", "a stored tensor"};

template <class T>
const T& get(const TorchValue& value, const char* expected) {
  if (const T* found = std::get_if<T>(&value.variant())) return *found;
  throw Error(ErrorKind::kData, std::string("found ") + kNames[value.variant().index()] +
                                    " where " + expected + " was expected");
}

}  // namespace

void TorchDict::set(TorchKey key, TorchValue value) {
  FT_CHECK(
      std::none_of(items.begin(), items.end(), [&](const auto& item) { return item.first == key; }),
      "a key is set twice");
  items.emplace_back(std::move(key), std::move(value));
}

bool TorchValue::as_bool() const { return get<bool>(*this, "a boolean"); }

int64_t TorchValue::as_int() const { return get<int64_t>(*this, "an integer"); }

double TorchValue::as_double() const {
  if (is_int()) return static_cast<double>(as_int());
  return get<double>(*this, "a number");
}

const std::string& TorchValue::as_string() const { return get<std::string>(*this, "a string"); }

const std::vector<TorchValue>& TorchValue::as_sequence() const {
  if (const auto* tuple = std::get_if<TorchTuple>(&value_)) return tuple->items;
  return get<TorchList>(*this, "a list");
}

const TorchDict& TorchValue::as_dict() const { return get<TorchDict>(*this, "a dictionary"); }

const Tensor& TorchValue::as_tensor() const { return get<Tensor>(*this, "a tensor"); }

const StoredTensor& TorchValue::as_stored_tensor() const {
  return get<StoredTensor>(*this, "a tensor");
}

const TorchValue* TorchValue::find(const TorchKey& key) const {
  const TorchDict& dict = as_dict();
  const auto found = std::find_if(dict.items.begin(), dict.items.end(),
                                  [&](const auto& item) { return item.first == key; });
  return found == dict.items.end() ? nullptr : &found->second;
}

const TorchValue& TorchValue::at(const TorchKey& key) const {
  if (const TorchValue* value = find(key)) return *value;
  const std::string name = std::holds_alternative<int64_t>(key)
                               ? std::to_string(std::get<int64_t>(key))
                               : "'" + std::get<std::string>(key) + "'";
  throw Error(ErrorKind::kData, "the key " + name + " is missing");
}

}  // namespace finetune
