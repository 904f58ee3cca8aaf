// SPDX-License-Identifier: MIT
#include "finetune/report/batch_text.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>

#include "finetune/base/text.h"

namespace finetune {
namespace {

constexpr int64_t kShownSamples = 4;
constexpr size_t kShownTokens = 96;  // of a sequence
constexpr size_t kShownLabels = 24;

// Quotes text, escaping control characters.
std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

class BatchText {
 public:
  BatchText(const Batch& batch, const BatchNames& names) : batch_(batch), names_(names) {}

  std::string take() {
    const int64_t shown = std::min(kShownSamples, batch_.size());
    for (int64_t sample = 0; sample < shown; ++sample) add_sample(sample);
    if (shown < batch_.size()) {
      text_ += format_text("... and {} more samples\n", batch_.size() - shown);
    }
    return std::move(text_);
  }

 private:
  // Returns the indices in the row of its tokens without padding, in order.
  [[nodiscard]] std::vector<size_t> positions(int64_t row) const {
    std::vector<size_t> list;
    for (size_t i = 0; i < static_cast<size_t>(batch_.length); ++i) {
      if (batch_.attention_mask[at(row, i)] != 0) list.push_back(i);
    }
    return list;
  }
  [[nodiscard]] size_t at(int64_t row, size_t position) const {
    return static_cast<size_t>(row * batch_.length) + position;
  }
  [[nodiscard]] int32_t id(int64_t row, size_t position) const {
    return static_cast<int32_t>(batch_.input_ids[at(row, position)]);
  }
  [[nodiscard]] std::string decode(const std::vector<int32_t>& ids) const {
    return quoted(names_.tokenizer.decode(ids, /*skip_special_tokens=*/false));
  }
  [[nodiscard]] std::string label_name(int64_t label) const {
    if (label == kIgnoredLabel) return "none";
    const auto index = static_cast<size_t>(label);
    return label >= 0 && index < names_.id2label.size() ? names_.id2label[index]
                                                        : std::to_string(label);
  }

  void line(const std::string& name, const std::string& value) {
    text_ += "  " + name + std::string(name.size() < 10 ? 10 - name.size() : 1, ' ') + value + "\n";
  }

  void add_row(int64_t row, const std::string& name) {
    const std::vector<size_t> tokens = positions(row);
    std::vector<int32_t> ids;
    for (const size_t position : tokens) {
      if (ids.size() == kShownTokens) break;
      ids.push_back(id(row, position));
    }
    line(name,
         decode(ids) +
             (ids.size() < tokens.size() ? format_text(" ... ({} tokens)", tokens.size()) : ""));
  }

  void add_sample(int64_t sample) {
    const auto number = static_cast<size_t>(sample);
    text_ += "sample " +
             (number < batch_.samples.size() ? std::to_string(batch_.samples[number]) : "?") + "\n";
    const int64_t first = sample * batch_.choices;
    for (int64_t choice = 0; choice < batch_.choices; ++choice) {
      add_row(first + choice, batch_.choices > 1 ? format_text("choice {}", choice) : "text");
    }
    if (names_.target_text != nullptr) return line("answers", names_.target_text(batch_, first));
    if (!batch_.labels.empty()) {
      names_.labels_are_words ? add_words(first) : add_tags(first);
    }
    if (!batch_.starts.empty()) add_answer(first);
    if (!batch_.classes.empty()) add_class(batch_.classes[number]);
    if (!batch_.values.empty()) add_values(number);
  }

  // Returns the indices of the row's tokens that have a label.
  [[nodiscard]] std::vector<size_t> labelled(int64_t row) const {
    std::vector<size_t> list;
    for (const size_t position : positions(row)) {
      if (batch_.labels[at(row, position)] != kIgnoredLabel) list.push_back(position);
    }
    return list;
  }

  template <class Show>
  void add_list(const std::string& name, const std::vector<size_t>& list, const Show& show) {
    std::string text;
    for (size_t i = 0; i < std::min(list.size(), kShownLabels); ++i) {
      text += (i == 0 ? "" : ", ") + show(list[i]);
    }
    if (list.size() > kShownLabels) {
      text += format_text(", ... ({})", list.size());
    }
    line(name, text.empty() ? "none" : text);
  }

  void add_words(int64_t row) {
    add_list("to learn", labelled(row), [&](size_t position) {
      const auto word = static_cast<int32_t>(batch_.labels[at(row, position)]);
      return format_text("{}: {} {} {}", position, decode({id(row, position)}),
                         names_.labels_follow ? "then" : "is", decode({word}));
    });
  }
  void add_tags(int64_t row) {
    add_list("tags", labelled(row), [&](size_t position) {
      return decode({id(row, position)}) + " " + label_name(batch_.labels[at(row, position)]);
    });
  }
  void add_answer(int64_t row) {
    const auto number = static_cast<size_t>(row);
    const int64_t start = batch_.starts[number];
    const int64_t end = batch_.ends[number];
    if (start == 0 && end == 0) return line("answer", "none in this window");
    std::vector<int32_t> ids;
    for (int64_t i = start; i <= std::min(end, batch_.length - 1); ++i) {
      ids.push_back(id(row, static_cast<size_t>(i)));
    }
    line("answer", format_text("{}, tokens {} to {}", decode(ids), start, end));
  }
  void add_class(int64_t label) {
    line("label", names_.class_text != nullptr ? names_.class_text(label) : label_name(label));
  }
  void add_values(size_t sample) {
    const size_t outputs = batch_.values.size() / static_cast<size_t>(batch_.size());
    const std::span<const float> values(&batch_.values[sample * outputs], outputs);
    std::string text;
    for (size_t i = 0; i < outputs; ++i) {
      if (!names_.is_regression && values[i] == 0.0F) continue;
      text += (text.empty() ? "" : ", ") +
              (names_.is_regression ? format_number("%.4g", static_cast<double>(values[i]))
                                    : label_name(static_cast<int64_t>(i)));
    }
    line("label", text.empty() ? "none" : text);
  }

  const Batch& batch_;
  const BatchNames& names_;
  std::string text_;
};

}  // namespace

std::string batch_text(const Batch& batch, const BatchNames& names) {
  return BatchText(batch, names).take();
}

}  // namespace finetune
