// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "finetune/data/dataset.h"
#include "finetune/report/progress.h"
#include "train/setup/assemble.h"

namespace finetune {

// What the model that a run starts from says of samples, for losses that compare with it
// (TaskSetup::needs_reference()): in cache_dir, or computed, in evaluation mode, before the first
// step. A sample's values depend on the model, the sample, the precision and the kind of device
// alone: it is computed by itself, on the CPU by one thread. What was computed when a session ends
// is kept.
class Reference {
 public:
  // `request`, `start`: those of the run's training; both, config and progress must outlive this.
  // `saved`: of the run that is resumed, or null.
  Reference(const LoadedConfig& config, const AssemblyRequest& request, const DataParts& start,
            const RunState* saved, ProgressDisplay& progress);
  ~Reference();
  Reference(const Reference&) = delete;
  Reference& operator=(const Reference&) = delete;

  // A hash of the starting model and adapter, part of the run's identity (RunIdentity::guides).
  [[nodiscard]] const std::string& identity() const { return identity_; }
  // Returns the samples with these values; null for null. A collective. Throws Error(kConfig) if
  // the starting model is needed and gone, Error(kData) for values that are not finite, and
  // Interrupted. `what`: the key that names the data.
  [[nodiscard]] std::shared_ptr<const Dataset> add_to(const std::shared_ptr<const Dataset>& data,
                                                      const std::string& what);

 private:
  struct Values;
  [[nodiscard]] std::string entry_of(const Dataset& data) const;
  [[nodiscard]] Values read(const std::string& entry, int64_t samples);
  void fetch(const std::string& entry) const;
  void write(const std::string& entry, const Values& values) const;
  void compute(const std::shared_ptr<const Dataset>& data, const std::string& entry,
               Values& values);
  [[nodiscard]] Parts& model();

  const LoadedConfig& config_;
  const AssemblyRequest& request_;
  const DataParts& start_;
  ProgressDisplay& progress_;
  bool is_there_;  // the starting model
  std::string identity_;
  std::optional<LoadedConfig> own_config_;
  std::optional<Parts> model_;
};

}  // namespace finetune
