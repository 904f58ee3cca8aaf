// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

namespace finetune {

// How a file may call tensors of a model: `stored` as a part of a name stands for the part in
// `names`; several are equal parts of the tensor's rows, in this order. With "^" names begin with
// the rest of `stored`.
struct StoredName {
  std::string stored;
  std::vector<std::string> names;
};
using StoredNames = std::vector<StoredName>;

}  // namespace finetune
