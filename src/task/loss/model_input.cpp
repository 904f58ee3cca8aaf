// SPDX-License-Identifier: MIT
#include "task/loss/model_input.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>

#include "finetune/task/task.h"
#include "finetune/tensor/device.h"

namespace finetune {
namespace {

// Copies through pinned memory to a GPU without waiting: torch keeps the pinned block until the
// copy is done and then reuses it.
template <class T>
Tensor copy_of(const std::vector<T>& values, at::ScalarType stored, c10::Device device,
               at::ScalarType type) {
  const auto size = static_cast<int64_t>(values.size());
  if (!device.is_cpu()) {
    const Tensor pinned = at::empty({size}, host_options(stored, device));
    std::copy_n(values.data(), values.size(), static_cast<T*>(pinned.data_ptr()));
    const bool is_pinned = features_of(device).pinned;
    return pinned.to(device, stored, /*non_blocking=*/is_pinned, /*copy=*/true).to(type);
  }
  // from_blob has no const overload; the data is copied
  auto* data = const_cast<T*>(values.data());
  return at::from_blob(data, {size}, at::TensorOptions().dtype(stored))
      .to(device, type, false, true);
}

// The cells of a row from its first one on that are computed.
int64_t length_of(const Batch& batch, int64_t row, bool is_causal) {
  const auto begin = static_cast<size_t>(row * batch.length);
  // Whether nothing reads the last token.
  const auto is_unread = [&](int64_t t) {
    const size_t cell = begin + static_cast<size_t>(t);
    if (!batch.labels.empty() && batch.labels[cell] != kIgnoredLabel) return false;
    return batch.attention_mask[cell] == 0 || (is_causal && !batch.labels.empty());
  };
  int64_t length = batch.length;
  while (length > 1 && is_unread(length - 1)) --length;
  return length;
}

// Returns null if no row ends in padding, and few cells are tokens that nothing reads.
std::shared_ptr<const TokenLayout> layout_of(const Batch& batch, c10::Device device,
                                             bool is_causal) {
  const int64_t cells = batch.rows * batch.length;
  const bool has_padding = batch.tokens != cells;
  // Where operators are compiled for shapes, rows stay padded: each number of tokens would be
  // another.
  if ((!has_padding && !is_causal) || compiles_shapes(device)) return nullptr;
  std::vector<int64_t> lengths;
  std::vector<int64_t> whole_lengths;
  int64_t tokens = 0;
  int64_t attended = 0;
  for (int64_t row = 0; row < batch.rows; ++row) {
    const int64_t length = length_of(batch, row, is_causal);
    lengths.push_back(length);
    whole_lengths.push_back(is_causal ? length_of(batch, row, false) : length);
    tokens += length;
    const auto begin = batch.attention_mask.begin() + row * batch.length;
    attended += std::count(begin, begin + length, uint8_t{1});
  }
  constexpr int64_t kFewest = 20;  // a layout is worth it from a twentieth of the cells on
  if (tokens == cells || (!has_padding && (cells - tokens) * kFewest < cells)) return nullptr;
  const std::shared_ptr<TokenLayout> layout = make_token_layout(lengths, batch.length, device);
  layout->whole_lengths = std::move(whole_lengths);
  if (tokens != attended) {
    const Tensor mask = copy_of(batch.attention_mask, at::kByte, device, at::kBool);
    layout->mask = mask.index_select(0, layout->cells).view({1, 1, 1, tokens});
  }
  return layout;
}

}  // namespace

Batch with_full_rows(const Batch& batch) {
  Batch full = batch;
  const bool has_padding = batch.tokens != batch.rows * batch.length;
  const auto end = static_cast<size_t>(batch.rows * batch.length);
  const auto begin = end - static_cast<size_t>(batch.length);
  for (; full.rows < full.full_rows; ++full.rows) {
    const auto add_row = [&](auto& values) {
      for (size_t cell = begin; cell < end && !values.empty(); ++cell)
        values.push_back(values[cell]);
    };
    add_row(full.input_ids);
    add_row(full.attention_mask);
    add_row(full.token_type_ids);
  }
  if (!has_padding) full.tokens = full.rows * full.length;
  return full;
}

Tensor real_rows(const Tensor& outputs, const Batch& batch) {
  return outputs.size(0) == batch.rows ? outputs : outputs.narrow(0, 0, batch.rows);
}

Tensor to_device(const std::vector<int64_t>& values, c10::Device device) {
  return copy_of(values, at::kLong, device, at::kLong);
}

Tensor to_device(const std::vector<float>& values, c10::Device device) {
  return copy_of(values, at::kFloat, device, at::kFloat);
}

ModelInput make_model_input(const Batch& batch, c10::Device device,
                            const std::optional<DropoutStream>& dropout, bool is_causal) {
  if (compiles_shapes(device) && batch.rows > 0 && batch.rows < batch.full_rows) {
    return make_model_input(with_full_rows(batch), device, dropout);
  }
  const std::vector<int64_t> shape = {batch.rows, batch.length};
  ModelInput input;
  input.input_ids = to_device(batch.input_ids, device).view(shape);
  if (batch.tokens != batch.rows * batch.length) {
    input.attention_mask = copy_of(batch.attention_mask, at::kByte, device, at::kBool).view(shape);
  }
  const auto& types = batch.token_type_ids;
  if (std::any_of(types.begin(), types.end(), [](uint8_t type) { return type != 0; })) {
    input.token_type_ids = copy_of(types, at::kByte, device, at::kLong).view(shape);
  }
  input.layout = layout_of(batch, device, is_causal);
  input.dropout = dropout;
  return input;
}

Tensor read_positions(std::vector<int64_t> positions, c10::Device device) {
  std::ranges::sort(positions);
  positions.erase(std::unique(positions.begin(), positions.end()), positions.end());
  return to_device(positions, device);
}

void leave_out_of_pooling(std::span<const int64_t> counts, const Batch& batch, c10::Device device,
                          ModelInput& input) {
  if (counts.empty()) return;
  std::vector<int64_t> pooled(batch.attention_mask.begin(), batch.attention_mask.end());
  for (int64_t row = 0; row < batch.rows; ++row) {
    int64_t left = counts[static_cast<size_t>(row) % counts.size()];
    for (int64_t t = 0; t < batch.length && left > 0; ++t) {
      left -= std::exchange(pooled[static_cast<size_t>(row * batch.length + t)], 0);
    }
  }
  input.pooled_tokens = to_device(pooled, device).view({batch.rows, batch.length}).to(at::kBool);
}

}  // namespace finetune
