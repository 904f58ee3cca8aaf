// SPDX-License-Identifier: MIT
#include "finetune/state/scheduler_file.h"

namespace finetune {

TorchValue scheduler_to_torch(int64_t updates, double initial_learning_rate, double learning_rate) {
  TorchDict root;
  root.set("base_lrs", TorchList{initial_learning_rate, initial_learning_rate});
  root.set("last_epoch", updates);
  root.set("_step_count", updates + 1);
  root.set("_is_initial", false);
  root.set("_get_lr_called_within_step", false);
  root.set("_last_lr", TorchList{learning_rate, learning_rate});
  root.set("lr_lambdas", TorchList{TorchDict{}, TorchDict{}});
  return root;
}

}  // namespace finetune
