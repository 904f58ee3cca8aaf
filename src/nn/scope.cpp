// SPDX-License-Identifier: MIT
#include "finetune/nn/scope.h"

#include <algorithm>

#include "finetune/base/error.h"
#include "finetune/base/text.h"

namespace finetune::nn {

Scope Scope::operator/(std::string_view name) const {
  Scope child = *this;
  child.prefix_.append(name).append(".");
  return child;
}

Scope Scope::of_output() const {
  Scope output = *this;
  output.is_output_ = true;
  return output;
}

Scope Scope::without_adapters() const {
  Scope plain = *this;
  plain.lora_ = nullptr;
  return plain;
}

std::optional<LoraTerm> Scope::lora(int64_t inputs, int64_t outputs) const {
  if (lora_ == nullptr) return std::nullopt;
  const std::optional<LoraSettings> settings = lora_->find(module(), is_output_);
  if (!settings) return std::nullopt;
  const int64_t rank = settings->r;
  check_rank(rank, {outputs, inputs});
  // In this order of evaluation: A is numbered before B.
  const Weight a = parameter("lora_A.weight", {rank, inputs}, ParameterRole::kAdapter);
  const Weight b = parameter("lora_B.weight", {outputs, rank}, ParameterRole::kAdapter);
  LoraTerm term{.a = a,
                .b = b,
                .scale = settings->scale,
                .dropout = lora_->config().lora_dropout,
                .magnitude = {}};
  if (lora_->config().use_dora) {
    term.magnitude = parameter("lora_magnitude_vector", {outputs}, ParameterRole::kAdapter);
  }
  return term;
}

std::optional<LoraSettings> Scope::lora_of_parameter(std::string_view name) const {
  return lora_ == nullptr ? std::nullopt : lora_->find_parameter(prefix_ + std::string(name));
}

LoraTerm Scope::lora_of_stack(const LoraSettings& settings, int64_t count, int64_t inputs,
                              int64_t outputs) const {
  check_rank(settings.r, {outputs, inputs});
  // In this order of evaluation, as in PEFT.
  const Weight a =
      parameter("lora_A.weight", {count * settings.r, inputs}, ParameterRole::kAdapter);
  const Weight b =
      parameter("lora_B.weight", {outputs, settings.r * count}, ParameterRole::kAdapter);
  return {.a = a, .b = b, .scale = settings.scale, .magnitude = {}};
}

std::optional<LoraTerm> Scope::lora_of_embedding(int64_t rows, int64_t columns) const {
  if (lora_ == nullptr) return std::nullopt;
  const std::optional<LoraSettings> settings = lora_->find_embedding(module());
  if (!settings) return std::nullopt;
  const int64_t rank = settings->r;
  check_rank(rank, {rows, columns});
  // In this order of evaluation, and with these names, as in PEFT.
  const Weight a = parameter("lora_embedding_A", {rank, rows}, ParameterRole::kAdapter);
  const Weight b = parameter("lora_embedding_B", {columns, rank}, ParameterRole::kAdapter);
  return LoraTerm{.a = a, .b = b, .scale = settings->scale, .magnitude = {}};
}

void Scope::check_rank(int64_t rank, c10::IntArrayRef sizes) const {
  // Layers with few outputs, such as gates and routers, have adapters of the others' rank, as in
  // PEFT.
  constexpr int64_t kFewValues = 256;
  if (rank <= std::max(sizes[0], sizes[1]) || sizes[0] * sizes[1] < kFewValues) return;
  const char* const key = rank == lora_->config().r ? "lora_r" : "lora_rank_pattern";
  throw LoraError(key, format_text("rank {} is above the size of '{}' [{}, {}], where an adapter "
                                   "saves nothing; lower it",
                                   rank, module(), sizes[0], sizes[1]));
}

std::optional<Weight> Scope::made(std::string_view name) const {
  const auto found = std::ranges::find(*list_, prefix_ + std::string(name), &Weight::name);
  return found == list_->end() ? std::nullopt : std::optional(*found);
}

Weight Scope::parameter(std::string_view name, c10::IntArrayRef sizes, ParameterRole role) const {
  return list_->emplace_back(list_->size(), prefix_ + std::string(name), sizes, role);
}

}  // namespace finetune::nn
