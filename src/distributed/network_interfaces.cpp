// SPDX-License-Identifier: MIT
#include "distributed/network_interfaces.h"

#include <ifaddrs.h>
#include <sys/socket.h>

#include <algorithm>
#include <vector>

#include "finetune/base/text.h"

namespace finetune {

std::string network_interfaces() {
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return "";
  std::vector<std::string> names;
  for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr) continue;
    const int family = one->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    if (std::ranges::find(names, one->ifa_name) == names.end()) names.emplace_back(one->ifa_name);
  }
  ::freeifaddrs(all);
  return join(names);
}

}  // namespace finetune
