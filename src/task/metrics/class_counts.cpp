// SPDX-License-Identifier: MIT
#include "task/metrics/class_counts.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace finetune {
namespace {

constexpr double kUndefined = std::numeric_limits<double>::quiet_NaN();

}  // namespace

void ClassCounts::add(int64_t classes, int64_t predicted, int64_t there) {
  const auto size = static_cast<size_t>(std::max(classes, there + 1));
  if (classes_.size() < size) classes_.resize(size);
  const bool hit = predicted == there;
  ++classes_[static_cast<size_t>(predicted)].predicted;
  ++classes_[static_cast<size_t>(there)].there;
  classes_[static_cast<size_t>(there)].hits += hit ? 1 : 0;
  hits_ += hit ? 1 : 0;
  ++samples_;
}

double ClassCounts::accuracy() const {
  return samples_ == 0 ? kUndefined : static_cast<double>(hits_) / static_cast<double>(samples_);
}

// R_K of Gorodkin 2004, computed from the row and column sums of the confusion matrix.
double ClassCounts::matthews_correlation() const {
  if (samples_ == 0) return kUndefined;
  const auto samples = static_cast<double>(samples_);
  double both = static_cast<double>(hits_) * samples;
  double predicted = samples * samples;
  double there = samples * samples;
  for (const Hits& hits : classes_) {
    const auto p = static_cast<double>(hits.predicted);
    const auto t = static_cast<double>(hits.there);
    both -= p * t;
    predicted -= p * p;
    there -= t * t;
  }
  const double norm = predicted * there;
  return norm == 0.0 ? 0.0 : both / std::sqrt(norm);
}

double ClassCounts::average(double (Hits::*of)() const) const {
  if (samples_ == 0) return kUndefined;
  if (classes_.size() == 2) return (classes_[1].*of)();
  double sum = 0.0;
  int64_t count = 0;
  for (const Hits& hits : classes_) {
    if (hits.predicted + hits.there == 0) continue;
    sum += (hits.*of)();
    ++count;
  }
  return sum / static_cast<double>(count);
}

}  // namespace finetune
