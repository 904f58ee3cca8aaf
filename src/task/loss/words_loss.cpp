// SPDX-License-Identifier: MIT
#include "finetune/task/words_loss.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/log_softmax.h>

#include <algorithm>
#include <limits>

#include "finetune/nn/chunked_cross_entropy.h"
#include "finetune/tensor/backward.h"
#include "finetune/tensor/device.h"
#include "finetune/tensor/meta_memory.h"

namespace finetune {
namespace {

// Hidden states of which these positions are read alone.
Encoded encode_read(Model& model, ModelInput input, const Tensor& positions) {
  input.read_positions = positions;
  return model.encode(input);
}

// Declares the decoder's gradients complete in the backward pass of `tensor`. A tied weight is
// complete after the embeddings' backward pass only.
Tensor completing(const Tensor& tensor, const LmDecoder& decoder, ParameterStore& store) {
  return attach_backward(
      tensor, {tensor}, [&store, decoder](const Tensor& gradient) -> std::vector<Tensor> {
        store.gradients().complete({decoder.bias, decoder.is_tied ? Weight() : decoder.weight});
        return {gradient};
      });
}

}  // namespace

Tensor words_loss(Model& model, const ModelInput& input, const Tensor& positions,
                  const Tensor& labels, const WordsLossOptions& options) {
  return words_loss(model, input, encode_read(model, input, positions), positions, labels, options);
}

Tensor words_loss(Model& model, const ModelInput& input, const Encoded& encoded,
                  const Tensor& positions, const Tensor& labels, const WordsLossOptions& options) {
  const Tensor hidden = encoded.tokens_at(positions);
  if (!model.options().fused) {
    return at::cross_entropy_loss(model.head_logits(input, hidden, positions), labels, {},
                                  at::Reduction::Sum, -100, options.label_smoothing_factor);
  }
  const MemoryUseScope use(MemoryUse::kHead);
  Vocabulary words = model.vocabulary(input, hidden, positions);
  words.options.label_smoothing_factor = options.label_smoothing_factor;
  words.options.gradient_scale = options.gradient_scale;
  return completing(chunked_cross_entropy(words.x, words.decoder.weight, words.decoder.bias, labels,
                                          model.store(), words.options),
                    words.decoder, model.store());
}

Tensor token_log_probs(Model& model, const ModelInput& input, const Tensor& positions,
                       const Tensor& labels) {
  const Tensor hidden = encode_read(model, input, positions).tokens_at(positions);
  if (!model.options().fused) {
    return at::log_softmax(model.head_logits(input, hidden, positions), -1)
        .gather(1, labels.unsqueeze(1))
        .squeeze(1);
  }
  // The gradients are added in the backward pass, before that of x, which reports them as
  // complete.
  Vocabulary words = model.vocabulary(input, hidden, positions);
  words.x = completing(words.x, words.decoder, model.store());
  return chunked_log_probs(words.x, words.decoder.weight, words.decoder.bias, labels, model.store(),
                           words.options);
}

WordScores score_words(Model& model, const ModelInput& input, const Tensor& positions,
                       const Tensor& labels, const WordScoreOptions& options) {
  const Tensor hidden = encode_read(model, input, positions).tokens_at(positions);
  const int64_t rows = hidden.size(0);
  const int64_t rows_per_chunk = model.options().head_rows_per_chunk;
  WordScores scores{.best = at::empty_like(labels)};
  for (int64_t first = 0; first < rows; first += rows_per_chunk) {
    const int64_t count = std::min(rows_per_chunk, rows - first);
    const Tensor logits = model.head_logits(input, hidden.narrow(0, first, count));
    scores.loss_sum +=
        at::cross_entropy_loss(logits, labels.narrow(0, first, count), {}, at::Reduction::Sum, -100,
                               options.label_smoothing_factor)
            .item<double>();
    scores.best.narrow(0, first, count).copy_(logits.argmax(-1));
    if (!options.entropy) continue;
    const Tensor log_probs = at::log_softmax(logits, -1);
    Tensor terms = log_probs.exp().mul_(log_probs.clamp_min(std::numeric_limits<float>::lowest()));
    if (compiles_shapes(labels.device())) {  // some are fillers
      terms.mul_(labels.narrow(0, first, count).ge(0).unsqueeze(-1));
    }
    scores.entropy_sum -= terms.sum(at::kDouble).item<double>();
  }
  return scores;
}

}  // namespace finetune
