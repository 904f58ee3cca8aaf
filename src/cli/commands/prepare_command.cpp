// SPDX-License-Identifier: MIT
#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/process/command_line.h"
#include "cli/process/commands.h"
#include "finetune/base/error.h"
#include "finetune/base/interrupt.h"
#include "finetune/base/log.h"
#include "finetune/config/load.h"
#include "finetune/config/validate.h"
#include "finetune/train/prepare.h"

namespace finetune::cli {
namespace {

constexpr const char* kPrepareHelp =
    R"(usage: finetune prepare CONFIG [--show N] [--rows FILE] [--key value ...]

Tokenises the data files into cache_dir, for later trainings with the same
configuration; needs no GPU. With task pretraining it makes masked examples from the
documents of train_file and writes them as TFRecord shards (num_shards) to
prepare_output_dir, which train_file can then name. After an interruption the same
command makes the missing part. The result is printed as JSON.

  --show N      also print the first N samples of chat data (task sft), with what is
                learned marked
  --rows FILE   also write the training samples of clm, sft or dpo to FILE as JSON lines:
                input_ids, labels (-100: not learned), text

  --hard_negatives N    task embedding: write the pairs of train_file, each with N texts of
                        other pairs that are nearest to its query (negative_1, ...), to --rows
                        or output_dir/hard_negatives.jsonl, which train_file can then name;
                        model_name_or_path embeds them. As mine_hard_negatives of
                        sentence-transformers:
  --range_min N         leave out the nearest N
  --range_max N         look at the nearest N alone
  --max_score X         leave out texts whose cosine is above X, ...
  --min_score X         ... below X,
  --absolute_margin X   ... above the positive's minus X,
  --relative_margin X   ... above the positive's minus its share X
)";

}  // namespace

int prepare_command(const Arguments& arguments) {
  CommandLine line("prepare", kPrepareHelp);
  PrepareOutput output;
  line.number("--show", output.show);
  line.value("--rows", output.rows);
  HardNegativeOptions mining;
  std::optional<int64_t> negatives;
  std::optional<int64_t> range_min;
  line.number("--hard_negatives", negatives);
  line.number("--range_min", range_min);
  line.number("--range_max", mining.range_max);
  line.number("--max_score", mining.max_score);
  line.number("--min_score", mining.min_score);
  line.number("--absolute_margin", mining.absolute_margin);
  line.number("--relative_margin", mining.relative_margin);
  if (!line.parse(arguments)) return kExitFinished;
  mining.num_negatives = negatives.value_or(mining.num_negatives);
  mining.range_min = range_min.value_or(0);
  if (negatives) output.hard_negatives = mining;
  if (!negatives && (range_min || !(mining == HardNegativeOptions()))) {
    throw Error(ErrorKind::kUsage,
                "finetune prepare: margins, scores and ranks are for --hard_negatives N");
  }
  if (negatives) check_hard_negatives(mining);
  const ConfigWords words = line.config();
  const LoadedConfig config = load_long_run(words);
  validate(config, Purpose::kTrain);
  log::set_level(config.args.log_level);
  for (const std::string& note : config.notes) log::warning(note);
  interrupt::install_handlers();
  std::cout << run_prepare(config, output).dump(2) << std::endl;
  return kExitFinished;
}

}  // namespace finetune::cli
