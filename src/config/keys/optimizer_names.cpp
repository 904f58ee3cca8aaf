// SPDX-License-Identifier: MIT
#include "finetune/config/optimizer_names.h"

#include <algorithm>
#include <utility>

#include "finetune/base/error.h"

namespace finetune {
namespace {

std::deque<OptimizerNames>& optimizer_rows() {
  static std::deque<OptimizerNames> rows = {
#define FINETUNE_OPTIMIZER(NAME, ...) OptimizerNames{.name = #NAME, __VA_ARGS__},
#include "finetune/config/optimizers.def"
#undef FINETUNE_OPTIMIZER
  };
  return rows;
}

template <class Predicate>
const OptimizerNames* first_optimizer(Predicate predicate) {
  const auto found = std::ranges::find_if(optimizer_rows(), predicate);
  return found == optimizer_rows().end() ? nullptr : &*found;
}

}  // namespace

const std::deque<OptimizerNames>& optimizer_names() { return optimizer_rows(); }

const OptimizerNames* find_optimizer_names(std::string_view name) {
  return first_optimizer([&](const OptimizerNames& row) { return row.name == name; });
}

const OptimizerNames* find_optimizer_of(std::string_view spelling) {
  return first_optimizer([&](const OptimizerNames& row) {
    return std::ranges::find(row.spellings, spelling) != row.spellings.end();
  });
}

void add_optimizer_names(OptimizerNames names) {
  FT_CHECK(find_optimizer_names(names.name) == nullptr, "a new optimizer: " + names.name);
  optimizer_rows().push_back(std::move(names));
}

}  // namespace finetune
