// SPDX-License-Identifier: MIT
#include "task/embedding/text_vectors.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <numeric>

#include "finetune/base/error.h"
#include "finetune/model/embedding_files.h"

namespace finetune {

TextVectors::TextVectors(const std::string& folder, const PredictOptions& options)
    : runner_(Head::kEmbedding, "feature-extraction", folder, options),
      batch_size_(options.batch_size) {
  require_embedding(runner_.config(), folder);
}

Tensor TextVectors::of(const std::vector<Query>& texts, std::string_view prompt) {
  std::vector<ModelText> rows;
  for (const Query& text : texts) {
    rows.push_back(encode(std::string(prompt) + text.text, text.where));
  }
  const bool leaves_out = !prompt.empty() && !runner_.config().embedding.include_prompt;
  const int64_t unpooled =
      leaves_out ? tokens_of_prompt(runner_.tokenizer(), std::string(prompt)) : 0;
  // Texts of similar length share a batch, which pads less.
  std::vector<size_t> order(rows.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, std::greater(), [&](size_t row) { return rows[row].ids.size(); });
  std::vector<ModelText> sorted;
  for (const size_t row : order) sorted.push_back(std::move(rows[row]));
  Tensor vectors;
  runner_.run(
      sorted, batch_size_,
      [&](size_t row, const Tensor& vector) {
        if (!vectors.defined()) {
          vectors = at::empty({std::ssize(texts), vector.numel()}, at::kFloat);
        }
        vectors.select(0, static_cast<int64_t>(order[row])).copy_(vector);
      },
      unpooled);
  return vectors;
}

ModelText TextVectors::encode(const std::string& text, const std::string& where) {
  TextEncoder& encoder = runner_.encoder();
  const std::vector<int32_t> ids = encoder.ids(text, where);
  const auto longest = runner_.config().embedding.max_seq_length;
  if (!longest) return encoder.tokenizer().combine(encoder.cut(ids, where), std::nullopt);
  // The length of the training, without a warning, as sentence-transformers.
  const int64_t special = encoder.tokenizer().num_special_tokens_to_add(false);
  const int64_t room = std::min(*longest, runner_.config().max_length()) - special;
  const size_t kept = std::min(ids.size(), static_cast<size_t>(std::max<int64_t>(1, room)));
  const bool from_end = encoder.tokenizer().sides().truncate_left;
  return encoder.tokenizer().combine(
      from_end ? std::span(ids).last(kept) : std::span(ids).first(kept), std::nullopt);
}

int64_t tokens_of_prompt(const Tokenizer& tokenizer, const std::string& prompt) {
  const std::vector<int32_t> ids = tokenizer.encode(prompt);
  const ModelText whole = tokenizer.combine(ids, std::nullopt);
  const auto last = std::ranges::find_end(whole.ids, ids);
  return last.end() - whole.ids.begin();
}

}  // namespace finetune
