// SPDX-License-Identifier: MIT
#include "finetune/config/fields.h"

#include <algorithm>

namespace finetune {

void TrainingArgs::describe(FieldList& field) {
  ModelArgs::describe(field);
  DataArgs::describe(field);
  TaskArgs::describe(field);
  LoaderArgs::describe(field);
  DurationArgs::describe(field);
  OptimizerArgs::describe(field);
  DeviceArgs::describe(field);
  DistributedArgs::describe(field);
  LoggingArgs::describe(field);
  EvaluationArgs::describe(field);
  CheckpointArgs::describe(field);
  SessionArgs::describe(field);
  HubArgs::describe(field);
}

bool TrainingArgs::reports_to(std::string_view receiver) const {
  return std::find(report_to.begin(), report_to.end(), receiver) != report_to.end();
}

const std::vector<Field>& all_fields() {
  static const std::vector<Field> fields = [] {
    FieldList list;
    TrainingArgs::describe(list);
    return list.take();
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
