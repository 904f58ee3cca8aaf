// SPDX-License-Identifier: MIT
#include "finetune/config/embedding_args.h"

#include "finetune/config/fields.h"

namespace finetune {

void EmbeddingArgs::describe(FieldList& field) {
  field.section("Embeddings, rerankers, rewards");
  field(
      "text_columns", &EmbeddingArgs::text_columns,
      "Columns of the texts of a sample, in their order: anchor, positive, negatives (embedding), "
      "query and documents (reranker); a column may hold lists. Unset: all columns with text.",
      {.resume = ResumePolicy::kFree});
  field("loss_type", &EmbeddingArgs::loss_type,
        "The loss, under sentence-transformers' or TRL's name. embedding; unset: CoSENTLoss for "
        "pairs with a "
        "score, else MultipleNegativesRankingLoss; a loss that compares samples compares those of "
        "the whole update, however it is split. reranker; unset: LambdaLoss for lists with labels, "
        "else BinaryCrossEntropyLoss. dpo: sigmoid (also if unset), hinge, ipo, sigmoid_norm, "
        "robust, or simpo, which has no reference. kto: kto (also if unset) or apo_zero_unpaired.",
        {.choices = {"MultipleNegativesRankingLoss",
                     "CachedMultipleNegativesRankingLoss",
                     "MultipleNegativesSymmetricRankingLoss",
                     "CachedMultipleNegativesSymmetricRankingLoss",
                     "CoSENTLoss",
                     "AnglELoss",
                     "CosineSimilarityLoss",
                     "ContrastiveLoss",
                     "OnlineContrastiveLoss",
                     "TripletLoss",
                     "MarginMSELoss",
                     "GISTEmbedLoss",
                     "CachedGISTEmbedLoss",
                     "BinaryCrossEntropyLoss",
                     "MSELoss",
                     "ListNetLoss",
                     "RankNetLoss",
                     "LambdaLoss",
                     "sigmoid",
                     "hinge",
                     "ipo",
                     "sigmoid_norm",
                     "robust",
                     "simpo",
                     "kto",
                     "apo_zero_unpaired"},
         .resume = ResumePolicy::kFixed});
  field(
      "loss_kwargs", &EmbeddingArgs::loss_kwargs,
      "Arguments of loss_type as in sentence-transformers: {scale: 20.0} of the ranking losses, "
      "CoSENTLoss and AnglELoss, {margin: 0.5} of the contrastive losses, {triplet_margin: 5.0, "
      "distance_metric: euclidean} of TripletLoss, {guide: FOLDER, temperature: 0.01, margin: 0.0} "
      "of GISTEmbedLoss, {directions: [query_to_doc, doc_to_query], hardness_mode: "
      "all_negatives, hardness_strength: 9} of MultipleNegativesRankingLoss, {pos_weight: 1.0} of "
      "BinaryCrossEntropyLoss, "
      "{sigma: 1.0, weighting_scheme: NDCGLoss2PPScheme} of LambdaLoss; of a reranker's "
      "MultipleNegativesRankingLoss {scale: 10.0, num_negatives: 4}.",
      {.resume = ResumePolicy::kFixed});
  field("matryoshka_dims", &EmbeddingArgs::matryoshka_dims,
        "embedding: add up the loss of the first N dimensions for each of these N, as "
        "MatryoshkaLoss does; include the model's size.",
        {.resume = ResumePolicy::kFixed});
  field("mini_batch_size", &EmbeddingArgs::mini_batch_size,
        "embedding: samples that are computed at once, of the per_device_train_batch_size samples "
        "that a loss compares; the result of an update does not depend on it.",
        {.range = {.min = 1, .max = 1 << 20}, .resume = ResumePolicy::kFree});
  field("prompts", &EmbeddingArgs::prompts,
        "embedding: text before each text of a column, as {question: \"query: \", context: "
        "\"passage: \"}; unset: none.",
        {.resume = ResumePolicy::kFixed});
  field("pooling_mode", &EmbeddingArgs::pooling_mode,
        "embedding: how the tokens' hidden states become one vector; unset: the model's, else mean "
        "of an encoder and lasttoken of a decoder.",
        {.choices = {"mean", "cls", "lasttoken", "weightedmean"}, .resume = ResumePolicy::kFixed});
  field("include_prompt", &EmbeddingArgs::include_prompt,
        "embedding: pool the tokens of prompts, too; unset: the model's, else true.",
        {.resume = ResumePolicy::kFixed});
  field("dense", &EmbeddingArgs::dense,
        "embedding: a new layer after the pooling, as sentence-transformers' Dense: {out_features: "
        "256, bias: true, activation_function: Tanh}; its starting values depend on seed. Unset: "
        "the model's layers, if it has some.",
        {.resume = ResumePolicy::kFixed});
  field("normalize_embeddings", &EmbeddingArgs::normalize_embeddings,
        "embedding: the model scales its vectors to length 1; unset: the model's, else false.",
        {.resume = ResumePolicy::kFixed});
  field(
      "center_rewards_coefficient", &EmbeddingArgs::center_rewards_coefficient,
      "reward: factor of the squared sum of a pair's rewards in the loss, which centers rewards at "
      "zero; unset: 0. TRL's documentation suggests 0.01.",
      {.range = {.min = 0}, .resume = ResumePolicy::kFixed});
}

}  // namespace finetune
