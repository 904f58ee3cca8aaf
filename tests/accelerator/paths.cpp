// SPDX-License-Identifier: MIT
#include "accelerator/accelerator.h"

namespace finetune::testing {

std::string pretend_accelerator_path() { return FINETUNE_PRETEND_ACCELERATOR; }
std::string planted_faults_path() { return FINETUNE_PLANTED_FAULTS; }
std::string pretend_cuda_path() { return FINETUNE_PRETEND_CUDA; }

}  // namespace finetune::testing
