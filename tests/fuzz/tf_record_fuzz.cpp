// SPDX-License-Identifier: MIT
// TFRecord files with any content: they become records and pretraining examples, or an Error. The
// data are read both as a file of records and as the message of one record.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "finetune/base/error.h"
#include "finetune/data/shard_examples.h"
#include "finetune/data/tf_example.h"

namespace {

using namespace finetune;

class Bytes final : public ReadableFile {
 public:
  explicit Bytes(std::string content) : content_(std::move(content)) {}
  [[nodiscard]] uint64_t size() const override { return content_.size(); }
  void read_at(uint64_t offset, void* data, size_t size) const override {
    if (offset > content_.size() || size > content_.size() - offset) std::abort();
    std::memcpy(data, content_.data() + offset, size);
  }

 private:
  std::string content_;
};

void read_example(const std::string& data) {
  const ShardOptions options{.pad_id = 1, .vocabulary_limit = 300, .max_seq_length = 64};
  const PretrainingExample example = decode_example(data, "a.tfrecord: record 1", options);
  if (example.input_ids.empty() || example.input_ids.size() > 64) std::abort();
  if (example.segment_ids.size() != example.input_ids.size()) std::abort();
  for (const std::int32_t position : example.masked_lm_positions) {
    if (position < 0 || position >= static_cast<std::int32_t>(example.input_ids.size()))
      std::abort();
  }
}

template <class Action>
void attempt(const Action& action) {
  try {
    action();
  } catch (const Error&) {  // expected for these bytes
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  attempt([&] { read_example(bytes); });
  attempt([&] {
    const std::string written = encode_tf_example(decode_tf_example(bytes, "a.tfrecord: record 1"));
    if (encode_tf_example(decode_tf_example(written, "")) != written) std::abort();
  });
  attempt([&] {
    const TfRecordFile file(std::make_unique<Bytes>(bytes), "a.tfrecord");
    for (std::int64_t i = 0; i < file.size(); ++i) {
      attempt([&] { read_example(file.read(i)); });
    }
  });
  return 0;
}
