// SPDX-License-Identifier: MIT
#include "finetune/report/html_report.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <utility>

namespace finetune {
namespace {

#include "report/report_page.inc"

// Escapes "<", which could end a script element or open a comment in it.
std::string script_data(const nlohmann::ordered_json& data) {
  const std::string json =
      data.dump(-1, ' ', true, nlohmann::ordered_json::error_handler_t::replace);
  std::string text;
  for (const char c : json) {
    if (c == '<') {
      text += "\\u003c";
    } else {
      text += c;
    }
  }
  return text;
}

std::string escaped(std::string_view plain) {
  std::string text;
  for (const char c : plain) {
    switch (c) {
      case '&':
        text += "&amp;";
        break;
      case '<':
        text += "&lt;";
        break;
      case '>':
        text += "&gt;";
        break;
      case '"':
        text += "&quot;";
        break;
      default:
        text += c;
    }
  }
  return text;
}

}  // namespace

std::string html_page(const nlohmann::ordered_json& data, const std::string& title,
                      const std::string& summary) {
  const std::pair<std::string_view, std::string> parts[] = {{"{{title}}", escaped(title)},
                                                            {"{{style}}", kPage_css},
                                                            {"{{summary}}", escaped(summary)},
                                                            {"{{data}}", script_data(data)},
                                                            {"{{script}}", kPage_js}};
  std::string page;
  std::string_view rest = kPage_html;
  // One pass over the template: inserted text is not searched for placeholders.
  while (true) {
    const size_t open = rest.find("{{");
    page += rest.substr(0, open);
    if (open == std::string_view::npos) return page;
    rest.remove_prefix(open);
    const auto* part = std::ranges::find_if(
        parts, [&](const auto& candidate) { return rest.starts_with(candidate.first); });
    if (part == std::end(parts)) return page + std::string(rest);
    page += part->second;
    rest.remove_prefix(part->first.size());
  }
}

std::vector<SeriesPoint> decimated(const std::vector<SeriesPoint>& points, size_t most) {
  if (points.size() <= most || most < 4) return points;
  const size_t buckets = most / 2;
  std::set<size_t> kept = {0, points.size() - 1};
  for (size_t bucket = 0; bucket < buckets; ++bucket) {
    const size_t begin = bucket * points.size() / buckets;
    const size_t end = (bucket + 1) * points.size() / buckets;
    size_t least = end;
    size_t greatest = end;
    size_t strange = end;
    for (size_t i = begin; i < end; ++i) {
      const double value = points[i].value;
      if (!std::isfinite(value)) {
        strange = i;
        continue;
      }
      if (least == end || value < points[least].value) least = i;
      if (greatest == end || value > points[greatest].value) greatest = i;
    }
    for (const size_t index : {least, greatest, strange}) {
      if (index != end) kept.insert(index);
    }
  }
  std::vector<SeriesPoint> result;
  result.reserve(kept.size());
  for (const size_t index : kept) result.push_back(points[index]);
  return result;
}

}  // namespace finetune
