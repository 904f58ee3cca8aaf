// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "finetune/config/json_text.h"

namespace finetune {

class FieldList;

// Which data is read and how it becomes batches. describe() documents the keys.
struct DataArgs {
  std::vector<std::string> train_file;
  std::vector<std::string> train_file_weights;  // numbers, one for each entry of train_file
  JsonText train_file_sets;  // {name: {loss_type, loss_kwargs}}, one for each entry of train_file
  std::vector<std::string> validation_file;
  std::vector<std::string> test_file;
  int64_t validation_split_percentage = 5;
  std::optional<int64_t> max_train_samples;
  std::optional<int64_t> max_eval_samples;
  std::optional<int64_t> max_predict_samples;
  std::optional<int64_t> max_seq_length;
  bool line_by_line = false;
  bool keep_linebreaks = true;
  bool pad_to_max_length = false;
  bool packing = false;
  std::string encoding_errors = "strict";
  std::optional<std::string> delimiter;
  std::string quoting = "auto";
  bool header = true;
  std::optional<std::string> text_column;
  std::optional<std::string> text_pair_column;
  std::optional<std::string> label_column;
  std::optional<std::string> context_column;
  std::vector<std::string> choice_columns;
  bool streaming = false;
  int64_t shuffle_buffer_size = 1000;
  std::string cache_dir = "~/.cache/finetune";
  bool overwrite_cache = false;
  std::optional<int64_t> preprocessing_num_workers;

  static void describe(FieldList& field);

 private:
  static void describe_files(FieldList& field);
  static void describe_columns(FieldList& field);
  static void describe_delimited(FieldList& field);
};

// How batches are ordered and moved to the device.
struct LoaderArgs {
  std::string train_sampling_strategy = "random";
  std::string batch_sampler = "batch_sampler";
  std::string multi_dataset_batch_sampler = "proportional";
  bool dataloader_drop_last = false;
  int64_t dataloader_num_workers = 0;
  std::optional<int64_t> dataloader_prefetch_factor;

  static void describe(FieldList& field);
};

}  // namespace finetune
