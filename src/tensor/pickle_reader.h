// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "finetune/tensor/safetensors_header.h"

// A restricted reader of the pickles that torch.save writes: containers, numbers, strings and
// descriptions of tensors. Globals are recognised by name, never looked up; nothing is called.
namespace finetune::pickle {

enum class Kind {
  kNone,
  kBool,
  kInt,
  kDouble,
  kString,
  kList,
  kTuple,
  kDict,  // children: key, value, key, value, ...
  kTensor,
  // Only used inside the machine; never reached from the root.
  kGlobal,
  kStorage,
};

struct Storage {
  std::string key;  // digits: the data is the archive's entry data/<key>
  DType dtype = DType::kF32;
  uint64_t elements = 0;
};

struct Node {
  Kind kind = Kind::kNone;
  int64_t integer = 0;  // also a bool, or the index of a storage or a tensor
  double real = 0;
  std::string text;
  std::vector<uint32_t> children;
};

struct TensorView {
  size_t storage = 0;
  int64_t offset = 0;  // in elements
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
};

// The value is the tree at `root`. Guaranteed: indices are valid; the tree is finite, at most 64
// deep and bounded in size; keys are integers or strings and unique; every tensor is within its
// storage and, unless it repeats elements (a stride of 0), not larger than it.
struct Pickle {
  std::vector<Node> nodes;
  uint32_t root = 0;
  std::vector<Storage> storages;
  std::vector<TensorView> tensors;
};

// `path` names the file in messages. Throws Error(kData).
[[nodiscard]] Pickle parse(std::string_view bytes, const std::string& path);

// The same for one of several consecutive pickles, as in files of torch before 1.6, where a
// storage's description has one more field. Removes the pickle from the front of `bytes`.
[[nodiscard]] Pickle parse_legacy(std::string_view& bytes, const std::string& path);

}  // namespace finetune::pickle
