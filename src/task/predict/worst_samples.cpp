// SPDX-License-Identifier: MIT
#include "task/predict/worst_samples.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "finetune/report/figure_text.h"

namespace finetune {
namespace {

constexpr size_t kMostWorst = 50;

// Six digits: more are not looked at.
WorstSamples::Json short_number(double value) {
  if (!std::isfinite(value)) return nullptr;
  return rounded_figure(value);
}

double ordered(double value) {
  return std::isnan(value) ? std::numeric_limits<double>::infinity() : value;
}

}  // namespace

void WorstSamples::add(int64_t sample, double score, const Badness& badness,
                       const std::function<Json()>& describe) {
  ++samples_;
  const Badness own = {.first = ordered(badness.first), .second = ordered(badness.second)};
  const auto position = std::ranges::upper_bound(
      worst_, own,
      [](const Badness& a, const Badness& b) {
        return a.first != b.first ? a.first > b.first : a.second > b.second;
      },
      &Entry::badness);
  if (position == worst_.end() && worst_.size() == kMostWorst) return;
  Json json = {{"sample", sample}, {"score", short_number(score)}};
  json.update(describe());
  worst_.insert(position, {.badness = own, .json = std::move(json)});
  if (worst_.size() > kMostWorst) worst_.pop_back();
}

void WorstSamples::write(FileSystem& files, const std::string& output_dir, const std::string& split,
                         const Json& more) const {
  if (empty() && more.empty()) return;
  Json list = Json::array();
  for (const Entry& entry : worst_) list.push_back(entry.json);
  Json whole = {
      {"split", split}, {"measure", measure_}, {"samples", samples_}, {"worst", std::move(list)}};
  whole.update(more);
  files.write_atomically(join_path(output_dir, kWorstSamplesFile),
                         whole.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
}

}  // namespace finetune
