// SPDX-License-Identifier: MIT
#pragma once

#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "finetune/config/training_args.h"

namespace finetune {

// Whether a key may change between the sessions of one run.
enum class ResumePolicy {
  kFreeAnnounced,  // may change; the change is printed
  kFree,           // may change silently: it affects this machine or session only
  kFixed,          // defines the run: a different value is an error
};

enum class Support {
  kSupported,
  kAccepted,  // has no effect here: a line is printed if it is not the default
  kRefused,   // an error if it is not the default, because results or files would differ
};

enum class PathKind {
  kNone,
  kPath,              // always a path
  kPathOrName,        // a path if it looks like one or exists, otherwise a hub name
  kPathUnlessChoice,  // a path unless it is one of the choices
  kPathOrBucket,      // a path unless it is a URL ("s3://...") or begins with "rclone:"
};

struct Range {
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  bool above_min = false;  // min itself is not allowed
  bool below_max = false;  // max itself is not allowed
};

// Properties of a key other than its name, type, default and help. Written with designated
// initialisers; every member has a default.
struct FieldSpec {
  Range range{};
  std::vector<std::string> choices{};  // empty: any value
  // Alternative spellings of values ("true" -> "all"), compared in lower case. "null" and
  // "[]" (a list without items) are allowed; of a mapping, the whole JSON text.
  std::vector<std::pair<std::string, std::string>> spellings{};
  Support support = Support::kSupported;
  std::vector<std::string> available{};  // accepted values in addition to the default
  // Message of kRefused ("is not available in this version") or kAccepted (why).
  std::string_view reason{};
  ResumePolicy resume = ResumePolicy::kFreeAnnounced;
  PathKind path = PathKind::kNone;
  // A choice by which the run decides once: a resumed run keeps the stored value.
  std::string_view decided{};
  bool steps = false;  // a number of steps, or below 1 a fraction of all steps; an integer above 1
  bool list_only = false;  // a list of strings that cannot be written as a single string
  bool named = false;      // a mapping that may also be a name or path
  bool listed = false;     // a mapping that may also be a list
  bool secret = false;     // never printed or stored
};

// Instead of a member: a key that nothing here reads, with its default.
struct ForeignKey {
  ForeignValue initial;
};

using FieldMember =
    std::variant<ForeignKey, bool TrainingArgs::*, int64_t TrainingArgs::*, double TrainingArgs::*,
                 std::string TrainingArgs::*, std::optional<bool> TrainingArgs::*,
                 std::optional<int64_t> TrainingArgs::*, std::optional<double> TrainingArgs::*,
                 std::optional<std::string> TrainingArgs::*,
                 std::vector<std::string> TrainingArgs::*, JsonText TrainingArgs::*>;

// One key of the configuration.
struct Field {
  std::string name;
  std::string help;  // one sentence
  std::string section;
  FieldMember member;
  FieldSpec spec;
};

// Whether the values of a key are of this type.
template <class T>
[[nodiscard]] bool holds(const Field& field) {
  const auto* foreign = std::get_if<ForeignKey>(&field.member);
  return foreign != nullptr ? std::holds_alternative<T>(foreign->initial)
                            : std::holds_alternative<T TrainingArgs::*>(field.member);
}

// Collects the keys while TrainingArgs::describe walks over them.
class FieldList {
 public:
  void section(std::string title) { section_ = std::move(title); }

  template <class Owner, class Member>
  void operator()(std::string name, Member Owner::*member, std::string help,
                  FieldSpec spec = FieldSpec{}) {
    Member TrainingArgs::*whole = member;
    fields_.push_back({std::move(name), std::move(help), section_, whole, std::move(spec)});
  }

  [[nodiscard]] std::vector<Field> take() { return std::move(fields_); }

 private:
  std::string section_;
  std::vector<Field> fields_;
};

// The keys that nothing here reads.
[[nodiscard]] std::vector<Field> foreign_fields();

// Every key, in the order of the parts of TrainingArgs; in each section those that nothing reads
// come last. Safe to call from several threads.
[[nodiscard]] const std::vector<Field>& all_fields();

// Returns the key of this name, or nullptr.
[[nodiscard]] const Field* find_field(std::string_view name);

}  // namespace finetune
