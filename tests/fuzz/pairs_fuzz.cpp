// SPDX-License-Identifier: MIT
// Rows of preferences with any content: they become pairs of sequences whose labels fit, or an
// Error. The first byte chooses the length, and what is learned.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "../data/byte_tokenizer.h"
#include "finetune/base/error.h"
#include "finetune/base/log.h"
#include "finetune/chat/chat_template.h"
#include "finetune/data/collate.h"
#include "finetune/data/pair_dataset.h"

namespace {

using namespace finetune;

constexpr char kTemplate[] =
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}</s>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}";

const testing::ByteTokenizer& bytes() {
  static const testing::ByteTokenizer tokenizer;
  return tokenizer;
}

std::shared_ptr<const chat::ChatRenderer> renderer() {
  static const auto shared = [] {
    chat::RenderOptions options;
    options.special_tokens = {"</s>"};
    options.eos_token = "</s>";
    return std::make_shared<const chat::ChatRenderer>(
        std::make_shared<const chat::ChatTemplate>(kTemplate, "template"), std::move(options));
  }();
  return shared;
}

void build(const std::string& rows, int form) {
  PairOptions options;
  options.json_lines = rows;
  options.renderer = renderer();
  options.max_seq_length = form % 2 == 0 ? 16 : 200;
  options.learns_chosen = form / 2 % 2 == 1;
  options.skip_bad_rows = form / 4 % 2 == 1;
  const auto data = build_pair_dataset({}, bytes(), options);
  std::vector<SampleKey> keys;
  for (std::int64_t i = 0; i < data->size(); ++i) keys.push_back({.index = i});
  const Batch batch = CausalLmCollator(PaddingOptions()).collate(*data, keys);
  if (batch.choices != 2 || batch.length > options.max_seq_length) std::abort();
  for (std::int64_t row = 0; row < batch.rows; ++row) {
    std::int64_t labels = 0;
    for (std::int64_t t = 0; t < batch.length; ++t) {
      const std::int64_t label = batch.labels[static_cast<std::size_t>(row * batch.length + t)];
      labels += label != kIgnoredLabel ? 1 : 0;
    }
    if (labels == 0) std::abort();  // nothing of an answer could be compared
  }
  if (options.learns_chosen && std::ssize(batch.values) != batch.size()) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  log::set_level("error");
  if (size == 0) return 0;
  try {
    build(std::string(reinterpret_cast<const char*>(data) + 1, size - 1), data[0]);
  } catch (const Error&) {  // expected for bad rows
  }
  return 0;
}
