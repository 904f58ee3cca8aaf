// SPDX-License-Identifier: MIT
#include "finetune/distributed/exchange_script.h"

#include <algorithm>
#include <cctype>
#include <utility>

namespace finetune {
namespace {

// A pooler's or a head's matrix, not a vocabulary's.
constexpr int64_t kSmallValues = int64_t{1} << 22;

// The beginning of a name up to its first number.
std::string layer_of(const std::string& name) {
  for (size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1)) {
    size_t end = dot + 1;
    while (end < name.size() && std::isdigit(static_cast<unsigned char>(name[end])) != 0) ++end;
    if (end > dot + 1 && end < name.size() && name[end] == '.') return name.substr(0, end);
  }
  return "";
}

}  // namespace

std::vector<ExchangeStep> by_layers(const std::vector<ExchangeStep>& steps,
                                    const std::vector<Parameter>& parameters) {
  std::vector<ExchangeStep> ordered = steps;
  const auto layer = [&](const ExchangeStep& step) {
    return layer_of(parameters.at(step.parameter).name());
  };
  for (auto begin = ordered.begin(); begin != ordered.end();) {
    const auto end = std::find_if(begin, ordered.end(), [&](const ExchangeStep& step) {
      return layer(step) != layer(*begin);
    });
    std::stable_partition(begin, end, [](const ExchangeStep& step) {
      return step.kind == ExchangeStep::Kind::kGather;
    });
    begin = end;
  }
  return ordered;
}

WholeValues::Entry WholeValues::entry_of(const Parameter& parameter) {
  Entry entry{.layer = layer_of(parameter.name()), .values = {}};
  entry.is_small = entry.layer.empty() && parameter.handle.numel() <= kSmallValues;
  return entry;
}

const ParameterTensors* WholeValues::find(const Parameter& parameter) const {
  const auto found = values_.find(parameter.handle.id());
  return found == values_.end() ? nullptr : &found->second.values;
}

void WholeValues::make_room(const Parameter& parameter) {
  if (keeps_all_) return;
  const Entry entry = entry_of(parameter);
  if (entry.is_small) return;
  std::erase_if(values_, [&](const auto& kept) {
    const Entry& other = kept.second;
    return !other.is_small && (entry.layer.empty() || other.layer != entry.layer);
  });
}

void WholeValues::add(const Parameter& parameter, ParameterTensors values) {
  Entry entry = entry_of(parameter);
  entry.values = std::move(values);
  values_.insert_or_assign(parameter.handle.id(), std::move(entry));
}

}  // namespace finetune
