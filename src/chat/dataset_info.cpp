// SPDX-License-Identifier: MIT
#include <array>
#include <nlohmann/json.hpp>

#include "finetune/base/file_system.h"
#include "finetune/base/json.h"
#include "finetune/base/json_fields.h"
#include "finetune/chat/conversation.h"

namespace finetune::chat {
namespace {

using Json = nlohmann::ordered_json;
using Names = ConversationNames;

constexpr std::array<std::pair<const char*, std::string Names::*>, 7> kColumns = {
    {{"messages", &Names::messages},
     {"system", &Names::system},
     {"tools", &Names::tools},
     {"prompt", &Names::prompt},
     {"query", &Names::query},
     {"response", &Names::response},
     {"history", &Names::history}}};
constexpr std::array<std::pair<const char*, std::string Names::*>, 7> kTags = {
    {{"role_tag", &Names::role},
     {"content_tag", &Names::content},
     {"user_tag", &Names::user},
     {"assistant_tag", &Names::assistant},
     {"observation_tag", &Names::observation},
     {"function_tag", &Names::function},
     {"system_tag", &Names::system_role}}};

template <class Table>
void read_names(Names& names, const JsonFields& entry, const char* part, const Table& table) {
  if (entry.find(part) == nullptr) return;
  const JsonFields fields = entry.fields(part);
  for (const auto& [name, member] : table) fields.read(name, names.*member);
}

}  // namespace

ConversationNames names_in_dataset_info(const std::string& path) {
  Names names;
  const std::string info = join_path(parent_path(path), "dataset_info.json");
  if (!FileSystem::local().exists(info)) return names;
  const Json json = read_json_file(info);
  if (!json.is_object()) return names;  // another program's file
  for (const auto& [name, value] : json.items()) {
    if (!value.is_object() || value.value("file_name", Json()) != file_name(path)) continue;
    const JsonFields entry(value, info + ": '" + name + "'");
    read_names(names, entry, "columns", kColumns);
    read_names(names, entry, "tags", kTags);
  }
  return names;
}

}  // namespace finetune::chat
