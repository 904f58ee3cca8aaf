// SPDX-License-Identifier: MIT
#include "finetune/report/bucket_cost.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "finetune/base/text.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;

// Requests of a save, about: its files, the logs and lists.
constexpr int64_t kWritesASave = 20;
constexpr int64_t kReadsASave = 15;
constexpr double kGigabyte = 1e9;

double count_in(const Json& use, const char* name) {
  const auto found = use.find(name);
  return found != use.end() && found->is_number() ? found->get<double>() : 0.0;
}

std::string dollars(double amount) {
  return amount > 0 && amount < 0.005 ? "under 0.01 USD" : format_number("%.2f USD", amount);
}

std::string up_to(double amount) {
  return (amount > 0 && amount < 0.005 ? "" : "up to ") + dollars(amount);
}

std::string bytes_of(double bytes) { return bytes_text(static_cast<uint64_t>(bytes)); }

}  // namespace

Json bucket_use(const Json& before, const ObjectStore::Use& use) {
  const Json earlier = before.is_object() ? before : Json::object();
  const auto sum = [&](const char* name, auto value) {
    return static_cast<int64_t>(count_in(earlier, name)) + static_cast<int64_t>(value);
  };
  return {{"writes", sum("writes", use.writes)},
          {"reads", sum("reads", use.reads)},
          {"sent", sum("sent", use.sent)},
          {"received", sum("received", use.received)}};
}

std::string bucket_use_text(const Json& use) {
  if (!use.is_object()) return "";
  const double writes = count_in(use, "writes");
  const double reads = count_in(use, "reads");
  if (writes + reads <= 0) return "";
  const double received = count_in(use, "received");
  std::string text = format_number("at least %.0f writing and ", writes) +
                     format_number("%.0f reading requests, ", reads) +
                     bytes_of(count_in(use, "sent")) +
                     " sent: " + dollars(writes * kDollarsPerWrite + reads * kDollarsPerRead);
  if (received > 0) {
    text +=
        "; " + bytes_of(received) + " received: " + up_to(received / kGigabyte * kDollarsPerGbOut);
  }
  return text + std::string(" (S3's prices of ") + kBucketPriceDate + ")";
}

Json expected_bucket_use(int64_t saves, uint64_t bytes_a_save, int64_t kept) {
  const auto bytes = static_cast<double>(bytes_a_save);
  // The newest is complete before the oldest is deleted.
  const int64_t most = std::min(saves, kept + 1);
  const double stored = bytes * static_cast<double>(std::max<int64_t>(most, 1));
  return {{"saves", saves},
          {"bytes_a_save", bytes_a_save},
          {"writes", saves * kWritesASave},
          {"stored", static_cast<int64_t>(stored)},
          {"request_dollars", static_cast<double>(saves) * (kWritesASave * kDollarsPerWrite +
                                                            kReadsASave * kDollarsPerRead)},
          {"month_dollars", stored / kGigabyte * kDollarsPerGbMonth},
          {"resume_dollars", bytes / kGigabyte * kDollarsPerGbOut}};
}

std::string expected_bucket_use_text(const Json& expected) {
  return format_number("the bucket: %.0f saves of ", count_in(expected, "saves")) +
         bytes_of(count_in(expected, "bytes_a_save")) + ", " +
         dollars(count_in(expected, "request_dollars")) + " for requests; " +
         bytes_of(count_in(expected, "stored")) + " stored, " +
         dollars(count_in(expected, "month_dollars")) + " a month; a resume elsewhere " +
         up_to(count_in(expected, "resume_dollars")) + " (S3's prices of " + kBucketPriceDate +
         ")\n";
}

}  // namespace finetune
