// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "finetune/chat/chat_renderer.h"
#include "finetune/data/rows.h"
#include "finetune/data/token_dataset.h"
#include "finetune/tokenizer/tokenizer.h"

namespace finetune {

struct ChatOptions : SampleOptions {
  std::shared_ptr<const chat::ChatRenderer> renderer;
  // What the renderer does, as text: template, variables, date, masks. Part of the cache's key.
  std::string renderer_identity;
  bool truncates = true;        // to max_seq_length; false: wrapped() splits the samples
  bool completion_only = true;  // of a prompt with its completion, learn the completion alone
  // Encode special tokens that a message spells as characters; false: as those tokens.
  bool special_tokens_as_text = false;
  bool skip_bad_rows = false;  // leave out rows that cannot be read or rendered, and count them
  chat::ConversationNames names = {};
};

// How many rows had what, and how many tokens there are.
struct ChatCounts {
  int64_t rows = 0;
  int64_t samples = 0;            // rows that are learned
  int64_t tokens = 0;             // of the samples
  int64_t learned = 0;            // tokens with a label that a model can predict
  int64_t truncated = 0;          // samples cut to max_seq_length
  int64_t cut_off = 0;            // rows left out: truncation removed all that would be learned
  int64_t nothing_learned = 0;    // rows left out: nothing in them is learned
  int64_t bad = 0;                // rows left out: they cannot be read or rendered
  int64_t special_tokens = 0;     // samples in which a message spells a special token
  int64_t drops_reasoning = 0;    // samples whose template leaves out reasoning
  int64_t lacks_instruction = 0;  // samples of several answers without instruction_template
  int64_t learns_end = 0;         // samples of which the token that ends an answer is learned
  int64_t drops_tools = 0;        // samples whose template leaves out tools or tool calls
  int64_t first_left_out = 0;     // number of the first row that is left out, from 1; 0: none
  std::string left_out_position;  // file and line of that row
  int64_t empty_answers = 0;      // samples with an answer that has no text
  int64_t first_bad = 0;          // number of the first bad row, from 1; 0: none
  std::string first_problem;      // of that row, with file and line
  int64_t prompt_differs = 0;     // samples whose prompt has other last tokens with its completion
  std::vector<int64_t> lengths;   // of the samples: minimum, median, 90 %, 99 %, maximum
};

// The samples of chat rows: ids, and labels where a model learns (kIgnoredLabel elsewhere). Rows
// without anything to learn are left out.
class ChatDataset final : public KeptSamples {
 public:
  explicit ChatDataset(std::shared_ptr<const SequenceDataset> rows);

  [[nodiscard]] int64_t tokens() const override { return counts_.tokens; }
  [[nodiscard]] const ChatCounts& counts() const { return counts_; }
  void set_first_left_out(std::string position) { counts_.left_out_position = std::move(position); }
  void set_first_problem(std::string problem) { counts_.first_problem = std::move(problem); }

 private:
  ChatCounts counts_;
};

// Joins all samples and splits them into samples of `length` tokens; the last may be shorter.
// Samples in which nothing is learned are left out.
[[nodiscard]] std::shared_ptr<const SequenceDataset> wrapped(const SequenceDataset& data,
                                                             int64_t length);

// One row as it is learned.
struct ChatSample {
  std::vector<int32_t> ids;
  std::vector<int32_t> labels;  // the id of the same token, or kIgnoredLabel
  int32_t flags = 0;            // of ChatFlag
  chat::RenderedChat rendered;
  // With completion_only: the end of the prompt's tokens, which are others with the completion.
  std::vector<int32_t> prompt_rest = {};
};

// Renders and tokenises one row. Throws Error(kData) without the row's position.
[[nodiscard]] ChatSample make_chat_sample(const nlohmann::ordered_json& row,
                                          const Tokenizer& tokenizer, const ChatOptions& options);

// Reads the rows of chat files. Throws Error(kData) with file and line for a row that cannot be
// read or rendered (unless skip_bad_rows), and Error(kConfig), showing a row, if nothing in any row
// is learned.
[[nodiscard]] std::shared_ptr<const ChatDataset> build_chat_dataset(
    const std::vector<std::string>& files, const Tokenizer& tokenizer, const ChatOptions& options);

}  // namespace finetune
