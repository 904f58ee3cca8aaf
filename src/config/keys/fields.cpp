// SPDX-License-Identifier: MIT
#include "finetune/config/fields.h"

#include <algorithm>
#include <utility>

namespace finetune {

void TrainingArgs::describe(FieldList& field) {
  ModelArgs::describe(field);
  AdapterArgs::describe(field);
  DataArgs::describe(field);
  TaskArgs::describe(field);
  ChatArgs::describe(field);
  EmbeddingArgs::describe(field);
  PreferenceArgs::describe(field);
  LoaderArgs::describe(field);
  DurationArgs::describe(field);
  OptimizerArgs::describe(field);
  DeviceArgs::describe(field);
  DistributedArgs::describe(field);
  LoggingArgs::describe(field);
  EvaluationArgs::describe(field);
  CheckpointArgs::describe(field);
  SessionArgs::describe(field);
}

bool TrainingArgs::reports_to(std::string_view receiver) const {
  return std::find(report_to.begin(), report_to.end(), receiver) != report_to.end();
}

const std::vector<Field>& all_fields() {
  static const std::vector<Field> fields = [] {
    FieldList list;
    TrainingArgs::describe(list);
    std::vector<Field> all = list.take();
    for (Field& foreign : foreign_fields()) {
      const auto last = std::find_if(all.rbegin(), all.rend(), [&](const Field& field) {
        return field.section == foreign.section;
      });
      all.insert(last == all.rend() ? all.end() : last.base(), std::move(foreign));
    }
    return all;
  }();
  return fields;
}

const Field* find_field(std::string_view name) {
  for (const Field& field : all_fields()) {
    if (field.name == name) return &field;
  }
  return nullptr;
}

}  // namespace finetune
