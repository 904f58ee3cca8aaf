// SPDX-License-Identifier: MIT
#include <algorithm>

#include "finetune/base/error.h"
#include "finetune/base/log.h"
#include "finetune/base/printable.h"
#include "finetune/base/text.h"
#include "finetune/data/pair_dataset.h"
#include "task/preference/preference.h"
#include "task/setup/chat_setup.h"

namespace finetune {
namespace {

constexpr double kBeta = 0.1;

// How pairs are read, as TRL's DPOTrainer reads them.
class PairSetup : public ChatSetup {
 public:
  explicit PairSetup(const SetupContext& context)
      : ChatSetup(context, chat::RenderOptions(), Json::object()) {}

  // Pairs that are cut are counted when they are read.
  [[nodiscard]] int64_t truncation_length() const override { return 0; }

  std::shared_ptr<const Dataset> read(Split split) override {
    const auto data = read_rows(split, pair_options(), build_pair_dataset, "pairs");
    report(data->counts(), "pairs");
    return data;
  }

 protected:
  [[nodiscard]] PairOptions pair_options() const {
    PairOptions options;
    options.renderer = renderer();
    options.renderer_identity = renderer_identity();
    options.special_tokens_as_text = args().special_tokens_in_text == "text";
    options.skip_bad_rows = args().skip_bad_rows;
    options.learns_chosen = learns_chosen();
    return options;
  }
  [[nodiscard]] virtual bool learns_chosen() const { return false; }
  // Whether each update computes the reference, without the adapter.
  static bool computes_reference(const TaskOptions& args) { return !args.precompute_ref_log_probs; }
  // Throws Error(kConfig) unless the base without the adapter is the reference.
  static void check_base(const SetupContext& context) {
    const KeyLocations& locations = context.options.locations;
    if (!context.model.lora) {
      refuse_key(locations, "precompute_ref_log_probs",
                 "false computes the reference without the adapter, and all weights are trained; "
                 "leave it out, or set use_peft: true");
    }
    if (!context.model.lora->modules_to_save.empty() || context.model.lora->bias != "none") {
      refuse_key(locations, "precompute_ref_log_probs",
                 "false computes the reference without the adapter, but other weights are trained, "
                 "too (lora_modules_to_save, lora_bias); leave it out");
    }
    if (locations.is_set("adapter_name_or_path")) {
      refuse_key(locations, "precompute_ref_log_probs",
                 "false computes the reference without the adapter, but the run starts from one "
                 "(adapter_name_or_path), which is the reference; leave it out");
    }
  }
  [[nodiscard]] double beta() const { return args().beta.value_or(kBeta); }
  [[nodiscard]] std::unique_ptr<Model> make_decoder(const ModelConfig& config, c10::Device device,
                                                    const ModelOptions& options) const {
    return make_model(std::nullopt, config, seed(), device, options);
  }

  // `samples`: "pairs" or "answers".
  void report(const PairCounts& counts, const std::string& samples) const {
    // "1 of 3 pairs is left out: ..." and "2 of 3 pairs are left out: ...".
    const auto warn = [&](int64_t number, const std::string& one, const std::string& several,
                          const std::string& why) {
      if (number == 0) return;
      log::warning(format_text("{} of {} {} {}{}", number, counts.rows, samples,
                               number == 1 ? one : several, why));
    };
    const std::string limit = "max_seq_length " + std::to_string(max_seq_length());
    const auto leave_out = [&](int64_t number, const std::string& why) {
      warn(number, "is left out: ", "are left out: ", why);
    };
    leave_out(counts.same_answers, "chosen and rejected are the same, as far as they are read");
    leave_out(counts.empty_answers, samples == "pairs" ? "a side has nothing after the prompt"
                                                       : "there is nothing after the prompt");
    leave_out(counts.long_prompts, "the prompt alone fills " + limit);
    leave_out(counts.bad, "they cannot be read, or the chat template refuses them");
    if (samples == "pairs") {
      warn(counts.truncated, "has an answer that is cut to ", "have an answer that is cut to ",
           limit);
    } else {
      warn(counts.truncated, "is cut to ", "are cut to ", limit);
    }
    warn(counts.has_questions, "has messages of the user after the prompt",
         "have messages of the user after the prompt",
         "; they are compared with the answers, as in TRL");
    warn(counts.unread_prompts, "has a column 'prompt'", "have a column 'prompt'",
         " that is not in the conversations that are compared; these alone are read");
    warn(counts.repeated_prompts, "has answers that repeat the prompt",
         "have answers that repeat the prompt",
         ", which is read twice, as in TRL: leave out the column 'prompt' or its text in the "
         "answers");
    if (!counts.unread_columns.empty()) {
      log::warning(format_text(
          "rows without a column 'prompt': {}; not read: {}",
          samples == "pairs" ? "it is what both texts begin with" : "answers are to no prompt",
          counts.unread_columns));
    }
    if (counts.prompt_differs == 0) return;
    warn(counts.prompt_differs, "has a prompt", "have a prompt",
         " whose end has other tokens when an answer follows" +
             (counts.first_difference.empty()
                  ? std::string()
                  : " (the first: \"" + shortened(counts.first_difference, 80) + "\")") +
             "; the answer begins where the tokens differ");
  }
};

DpoLoss dpo_loss_of(const TaskOptions& args) {
  const std::string name = args.loss_type.value_or("sigmoid");
  if (name == "sigmoid") return DpoLoss::kSigmoid;
  if (name == "hinge") return DpoLoss::kHinge;
  if (name == "ipo") return DpoLoss::kIpo;
  if (name == "sigmoid_norm") return DpoLoss::kSigmoidNorm;
  if (name == "robust") return DpoLoss::kRobust;
  if (name == "simpo") return DpoLoss::kSimpo;
  refuse_key(args.locations, "loss_type",
             "'" + name +
                 "' is no loss of task dpo, which has sigmoid, hinge, ipo, sigmoid_norm, "
                 "robust and simpo");
}

class DpoSetup final : public PairSetup {
 public:
  explicit DpoSetup(const SetupContext& context)
      : PairSetup(context), options_(options_of(context.options)) {
    if (options_.computes_reference && context.trains) check_base(context);
  }

  [[nodiscard]] Learner make_learner(const ModelConfig& config, c10::Device device,
                                     const ModelOptions& options) const override {
    auto model = make_decoder(config, device, options);
    auto task = make_dpo_task(*model, device, options_);
    return {std::move(model), std::move(task)};
  }

  [[nodiscard]] bool needs_reference() const override {
    return has_reference(options_.loss) && !options_.computes_reference;
  }

  [[nodiscard]] Results make_results(Split /*split*/) const override {
    return {make_measure_metrics(dpo_keys()), nullptr};
  }

 private:
  static DpoOptions options_of(const TaskOptions& args) {
    const DpoLoss loss = dpo_loss_of(args);
    const auto refuse_without = [&](const char* key, DpoLoss its, const char* name) {
      if (loss == its || !args.locations.is_set(key)) return;
      refuse_key(args.locations, key,
                 std::string("only loss_type ") + name + " reads it; set loss_type: " + name +
                     ", or leave it out");
    };
    refuse_without("label_smoothing", DpoLoss::kRobust, "robust");
    refuse_without("simpo_gamma", DpoLoss::kSimpo, "simpo");
    if (!has_reference(loss) && args.locations.is_set("precompute_ref_log_probs")) {
      log::warning(args.locations.where("precompute_ref_log_probs") +
                   ": precompute_ref_log_probs: no effect with loss_type simpo, which has no "
                   "reference");
    }
    return {.loss = loss,
            .beta = args.beta.value_or(kBeta),
            .label_smoothing = args.label_smoothing,
            .simpo_gamma = args.simpo_gamma,
            .drops = !args.disable_dropout,
            .computes_reference = has_reference(loss) && computes_reference(args)};
  }

  DpoOptions options_;
};

class KtoSetup final : public PairSetup {
 public:
  explicit KtoSetup(const SetupContext& context)
      : PairSetup(context), options_(options_of(context.options)) {
    if (options_.computes_reference && context.trains) check_base(context);
  }

  std::shared_ptr<const Dataset> read(Split split) override {
    const auto data = read_rows(split, pair_options(), build_answer_dataset, "answers");
    report(data->counts(), "answers");
    if (split == Split::kTrain) report_balance(data->desirable(), data->size());
    return data;
  }

  [[nodiscard]] Learner make_learner(const ModelConfig& config, c10::Device device,
                                     const ModelOptions& options) const override {
    auto model = make_decoder(config, device, options);
    auto task = make_kto_task(*model, device, options_);
    return {std::move(model), std::move(task)};
  }

  [[nodiscard]] bool needs_reference() const override { return !options_.computes_reference; }

  [[nodiscard]] Results make_results(Split /*split*/) const override {
    return {make_measure_metrics(kto_keys(), kto_differences()), nullptr};
  }

 private:
  static KtoOptions options_of(const TaskOptions& args) {
    const std::string loss = args.loss_type.value_or("kto");
    if (loss != "kto" && loss != "apo_zero_unpaired") {
      refuse_key(args.locations, "loss_type",
                 "'" + loss + "' is no loss of task kto, which has kto and apo_zero_unpaired");
    }
    return {.beta = args.beta.value_or(kBeta),
            .desirable_weight = args.desirable_weight,
            .undesirable_weight = args.undesirable_weight,
            .drops = !args.disable_dropout,
            .estimates_divergence = loss == "kto",
            .computes_reference = computes_reference(args)};
  }

  // The paper's eq. 8.
  void report_balance(int64_t desirable, int64_t all) const {
    const auto others = static_cast<double>(all - desirable);
    const double share = options_.desirable_weight * static_cast<double>(desirable) /
                         (options_.undesirable_weight * std::max(1.0, others));
    if (desirable == 0 || desirable == all) {
      log::warning(format_text("all {} answers are {}: there is no difference to learn", all,
                               desirable == all ? "desirable" : "undesirable"));
    } else if (share < 1.0 || share > 4.0 / 3.0) {
      log::info(format_text(
          "{} of {} answers are desirable: with desirable_weight {} the two kinds "
          "weigh alike",
          desirable, all,
          format_number("%.3g",
                        options_.undesirable_weight * others / static_cast<double>(desirable))));
    }
  }

  KtoOptions options_;
};

class OrpoSetup final : public PairSetup {
 public:
  using PairSetup::PairSetup;

  [[nodiscard]] Learner make_learner(const ModelConfig& config, c10::Device device,
                                     const ModelOptions& options) const override {
    auto model = make_decoder(config, device, options);
    auto task = make_orpo_task(*model, device, {.beta = beta(), .drops = !args().disable_dropout});
    return {std::move(model), std::move(task)};
  }

  [[nodiscard]] Results make_results(Split /*split*/) const override {
    return {make_measure_metrics(orpo_keys()), nullptr};
  }

 private:
  [[nodiscard]] bool learns_chosen() const override { return true; }
};

}  // namespace

std::unique_ptr<TaskSetup> make_dpo_setup(const SetupContext& context) {
  return std::make_unique<DpoSetup>(context);
}

std::unique_ptr<TaskSetup> make_kto_setup(const SetupContext& context) {
  return std::make_unique<KtoSetup>(context);
}

std::unique_ptr<TaskSetup> make_orpo_setup(const SetupContext& context) {
  return std::make_unique<OrpoSetup>(context);
}

}  // namespace finetune
