// SPDX-License-Identifier: MIT
#include "cli/commands/answer_prompts.h"

#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/process/outcome.h"
#include "cli/process/standard_output.h"
#include "finetune/base/error.h"
#include "finetune/base/interrupt.h"
#include "finetune/base/log.h"
#include "finetune/base/read_line.h"

namespace finetune::cli {
namespace {

void show(std::string_view text) {
  std::cout << text;
  if (!flush_standard_output()) throw ReaderLeft();
}

}  // namespace

int answer_prompts(const TaskDescriptor& task, const std::string& folder, PredictOptions options) {
  options.on_text = show;
  const auto model = task.pipeline.make_predictor(folder, options);
  log::info(options.chat ? "type a question; the model remembers the conversation. Ctrl-D ends"
                         : "type a text and the model continues it; Ctrl-D ends");
  nlohmann::ordered_json conversation = {{"messages", nlohmann::ordered_json::array()}};
  interrupt::break_reads();
  std::string line;
  for (int64_t number = 1;; ++number) {
    show("> ");
    if (!read_line(std::cin, line, "line " + std::to_string(number))) break;
    if (line.empty()) continue;
    try {
      Query query{.where = "line " + std::to_string(number), .text = line};
      if (options.chat) {
        nlohmann::ordered_json asked = conversation;
        asked["messages"].push_back({{"role", "user"}, {"content", line}});
        query.conversation = asked.dump();
        conversation = model->answer({std::move(query)}).front();
      } else {
        static_cast<void>(model->answer({std::move(query)}));
      }
    } catch (const Error& error) {  // of this line only: the next one may be shorter
      if (error.kind() != ErrorKind::kData) throw;
      log::error(error.what());
    }
    show("\n");
  }
  interrupt::throw_if_requested("predicting");
  show("\n");
  return kExitFinished;
}

}  // namespace finetune::cli
