// SPDX-License-Identifier: MIT
#include "finetune/report/event_writer.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <charconv>

#include "finetune/base/clock.h"
#include "finetune/base/crc32c.h"
#include "finetune/base/error.h"
#include "finetune/base/log.h"
#include "finetune/base/text.h"

namespace finetune {
namespace {

constexpr size_t kPendingBytes = size_t{64} << 10;
constexpr std::string_view kFilePrefix = "events.out.tfevents.";

template <class Unsigned>
std::string little_endian(Unsigned value) {
  std::string bytes;
  for (size_t i = 0; i < sizeof(value); ++i) {
    bytes += static_cast<char>((value >> (8 * i)) & 0xffU);
  }
  return bytes;
}

// Protocol buffer fields, in the wire format of tensorflow's event.proto, summary.proto and
// tensor.proto.
std::string varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80U; value >>= 7) bytes += static_cast<char>((value & 0x7fU) | 0x80U);
  return bytes + static_cast<char>(value);
}
std::string key(int field, uint64_t wire_type) {
  return varint((static_cast<uint64_t>(field) << 3) | wire_type);
}
std::string integer_field(int field, int64_t value) {
  return key(field, 0) + varint(static_cast<uint64_t>(value));
}
std::string double_field(int field, double value) {
  return key(field, 1) + little_endian(std::bit_cast<uint64_t>(value));
}
std::string float_field(int field, float value) {
  return key(field, 5) + little_endian(std::bit_cast<uint32_t>(value));
}
std::string bytes_field(int field, std::string_view value) {
  return key(field, 2) + varint(value.size()) + std::string(value);
}

std::string file_version() { return bytes_field(3, "brain.Event:2"); }
std::string summary(std::string_view value) { return bytes_field(5, bytes_field(1, value)); }
std::string session_start() { return bytes_field(7, integer_field(1, 1)); }

std::string record(std::string_view data) {
  const std::string length = little_endian(uint64_t{data.size()});
  return length + little_endian(masked_crc32c(length)) + std::string(data) +
         little_endian(masked_crc32c(data));
}

std::string host_name() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0 || name[0] == '\0') return "localhost";
  std::string host = name.data();
  std::replace(host.begin(), host.end(), '/', '_');
  return host;
}

std::string new_path(FileSystem& files, const std::string& folder) {
  static std::atomic<int> next{0};
  const auto seconds = static_cast<long long>(unix_seconds());
  for (;;) {
    // The counter makes names unique in containers, where the process id is always the same.
    std::string path = join_path(
        folder, format_text("{}{}.{}.{}.{}", kFilePrefix, seconds, host_name(), getpid(), next++));
    if (!files.exists(path)) return path;
  }
}

// Returns the seconds in the name of an event file; -1 for other files.
int64_t seconds_of(std::string_view name) {
  if (!name.starts_with(kFilePrefix)) return -1;
  name.remove_prefix(kFilePrefix.size());
  int64_t seconds = -1;
  const auto result = std::from_chars(name.data(), name.data() + name.size(), seconds);
  return result.ec == std::errc() ? seconds : -1;
}

}  // namespace

EventWriter::EventWriter(FileSystem& files, const std::string& folder, int64_t purge_step) {
  files.make_directories(folder);
  path_ = new_path(files, folder);
  file_ = files.create(path_);
  add_event(0, file_version());
  if (purge_step >= 0) {
    add_event(purge_step, file_version());
    add_event(purge_step, session_start());
  }
  file_->write(pending_);  // the caller handles an error: nothing has been trained yet
  pending_.clear();
}

EventWriter::~EventWriter() { flush(); }

void EventWriter::add_event(int64_t step, std::string_view payload) {
  if (!file_) return;
  std::string event = double_field(1, unix_seconds());
  if (step != 0) event += integer_field(2, step);
  pending_ += record(event.append(payload));
  if (pending_.size() >= kPendingBytes) flush();
}

void EventWriter::add_scalar(std::string_view tag, double value, int64_t step) {
  add_event(step, summary(bytes_field(1, tag) + float_field(2, static_cast<float>(value))));
}

void EventWriter::add_text(std::string_view tag, std::string_view text, int64_t step) {
  constexpr int64_t kString = 7;  // DT_STRING
  const std::string shape = bytes_field(2, integer_field(1, 1));
  const std::string tensor =
      integer_field(1, kString) + bytes_field(2, shape) + bytes_field(8, text);
  const std::string plugin = bytes_field(1, bytes_field(1, "text"));
  add_event(step, summary(bytes_field(1, std::string(tag) + "/text_summary") +
                          bytes_field(8, tensor) + bytes_field(9, plugin)));
}

void EventWriter::flush() {
  if (!file_ || pending_.empty()) return;
  try {
    file_->write(pending_);
  } catch (const Error& error) {
    log::warning(std::string(error.what()) +
                 " (TensorBoard's curves end here; training continues)");
    file_.reset();
  }
  pending_.clear();
}

std::string tensorboard_tag(std::string_view key) {
  for (const std::string_view split : {"eval", "test"}) {
    if (key.size() > split.size() && key.starts_with(split) && key[split.size()] == '_') {
      return std::string(split) + "/" + std::string(key.substr(split.size() + 1));
    }
  }
  return "train/" + std::string(key);
}

std::string tensorboard_folder(FileSystem& files, const std::string& runs) {
  std::string newest;
  int64_t newest_seconds = -1;
  if (files.type(runs) == FileType::kDirectory) {
    for (const std::string& name : files.list(runs)) {
      const std::string folder = join_path(runs, name);
      if (files.type(folder) != FileType::kDirectory) continue;
      for (const std::string& file : files.list(folder)) {
        if (seconds_of(file) <= newest_seconds) continue;
        newest_seconds = seconds_of(file);
        newest = folder;
      }
    }
  }
  if (!newest.empty()) return newest;
  return join_path(runs, local_time_text(unix_seconds(), "%b%d_%H-%M-%S") + "_" + host_name());
}

}  // namespace finetune
