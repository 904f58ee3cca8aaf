// SPDX-License-Identifier: MIT
#include "train/setup/load_verdict.h"

#include <algorithm>
#include <iterator>

#include "finetune/base/printable.h"
#include "finetune/base/text.h"

namespace finetune {
namespace {

using Refusal = LoadVerdict::Refusal;

constexpr char kModelKey[] = "model_name_or_path";

// The prefix of torch's wrappers that all names have; empty: they have none.
std::string wrapper_prefix(const std::vector<std::string>& names) {
  for (const char* prefix : {"module._orig_mod.", "_orig_mod.", "module."}) {
    const auto has_it = [&](const std::string& name) { return name.starts_with(prefix); };
    if (!names.empty() && std::ranges::all_of(names, has_it)) return prefix;
  }
  return "";
}

Refusal refuse_shapes(const LoadReport& report, const LoadedStart& start) {
  std::vector<std::string> shapes;
  for (const LoadReport::Mismatch& mismatch : report.mismatched) {
    shapes.push_back(mismatch.name + " " + shape_text(mismatch.folder_shape) + " instead of " +
                     shape_text(mismatch.model_shape));
  }
  const std::string advice =
      listed(shapes) + "; set ignore_mismatched_sizes: true to start these fresh" +
      (start.has_problem_type ? ", or problem_type where the labels are not what they look like"
                              : "");
  if (start.config_name) {
    return {.key = "config_name",
            .why = "the config.json of '" + *start.config_name +
                   "' asks for tensors of another shape than model_name_or_path '" + start.folder +
                   "' holds: " + advice};
  }
  return {.kind = ErrorKind::kData,
          .key = kModelKey,
          .why = "'" + start.folder +
                 "' holds tensors of another shape than the data or the keys ask for: " + advice};
}

Refusal refuse_all_missing(const LoadReport& report, const LoadedStart& start) {
  const std::string prefix = wrapper_prefix(report.unexpected);
  if (!prefix.empty()) {
    return {.key = kModelKey,
            .why = "the names of all tensors in '" + start.folder + "' begin with '" + prefix +
                   "', which torch.compile ('_orig_mod.') or DistributedDataParallel "
                   "('module.') put before them; save the model inside, or rename the tensors"};
  }
  return {.key = kModelKey,
          .why = "'" + start.folder + "' holds none of the model's " +
                 std::to_string(report.missing.size()) + " tensors; is it a " + start.model_type +
                 " model" +
                 (start.config_name ? ", as config_name '" + *start.config_name + "' says?" : "?")};
}

}  // namespace

LoadVerdict judge(const LoadReport& report, const LoadedStart& start) {
  if (!report.mismatched.empty() && !start.ignores_mismatches) {
    return {.refusal = refuse_shapes(report, start)};
  }
  if (report.missing.size() == start.parameters) {
    return {.refusal = refuse_all_missing(report, start)};
  }
  // A new expert among trained ones is no model that anyone wants.
  std::vector<std::string> experts;
  std::ranges::copy_if(report.missing, std::back_inserter(experts), [](const std::string& name) {
    return name.find(".experts.") != std::string::npos ||
           name.find(".block_sparse_moe.") != std::string::npos;
  });
  if (!experts.empty()) {
    return {.refusal = Refusal{.kind = ErrorKind::kData,
                               .key = kModelKey,
                               .why = "'" + start.folder + "' lacks weights of experts: " +
                                      listed(experts) + "; fetch the folder again"}};
  }
  std::vector<std::string> fresh = report.missing;
  for (const LoadReport::Mismatch& mismatch : report.mismatched) fresh.push_back(mismatch.name);
  if (!fresh.empty() && !start.is_trained) {
    const std::string why = "'" + start.folder + "' lacks " + std::to_string(fresh.size()) +
                            " tensors of " + start.architecture + " (" + listed(fresh) +
                            "); it was not trained for task '" + start.task + "'";
    return {.refusal = Refusal{.key = kModelKey, .why = why}};
  }
  std::vector<std::string> lost;  // frozen, but not as the base has them
  std::ranges::copy_if(fresh, std::back_inserter(lost), start.is_base);
  if (!lost.empty()) {
    const std::string why =
        "'" + start.folder +
        "' lacks weights of the base, which an adapter does not hold: " + listed(lost) +
        "; train the whole model first";
    return {.refusal = Refusal{.key = kModelKey, .why = why}};
  }
  return {.fresh = std::move(fresh)};
}

}  // namespace finetune
