// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "finetune/base/file_system.h"

namespace finetune {

// Prices of S3's standard class in us-east-1, in USD; the other stores charge about the same for
// their standard classes. An endpoint of one's own may be free.
inline constexpr const char* kBucketPriceDate = "2026-11";
inline constexpr double kDollarsPerWrite = 0.005 / 1000;
inline constexpr double kDollarsPerRead = 0.0004 / 1000;
inline constexpr double kDollarsPerGbMonth = 0.023;  // stored
inline constexpr double kDollarsPerGbOut = 0.09;     // read from outside the region

// The use of a run's buckets in all sessions: "writes", "reads", "sent" and "received" (bytes).
// `before`: that of earlier sessions, or an empty object.
[[nodiscard]] nlohmann::ordered_json bucket_use(const nlohmann::ordered_json& before,
                                                const ObjectStore::Use& use);

// "at least 1234 writing and 567 reading requests, 5200 MB sent: 0.01 USD; 300 MB received: up to
// 0.03 USD (S3's prices of 2026-11)"; empty for no use, or anything else.
[[nodiscard]] std::string bucket_use_text(const nlohmann::ordered_json& use);

// What the saves of a complete run will cost: "saves", "bytes_a_save", "writes", "stored" (bytes),
// "request_dollars", "month_dollars", "resume_dollars".
[[nodiscard]] nlohmann::ordered_json expected_bucket_use(int64_t saves, uint64_t bytes_a_save,
                                                         int64_t kept);
[[nodiscard]] std::string expected_bucket_use_text(const nlohmann::ordered_json& expected);

}  // namespace finetune
