// SPDX-License-Identifier: MIT
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "support/file_content.h"

namespace finetune::testing {

using Environment = std::map<std::string, std::string>;

// The processes that a launcher started, by rank.
inline std::vector<pid_t> children_of(pid_t parent) {
  const std::string id = std::to_string(parent);
  std::istringstream list(file_content("/proc/" + id + "/task/" + id + "/children"));
  std::vector<pid_t> children;
  for (pid_t child = 0; list >> child;) children.push_back(child);
  return children;
}

inline std::string free_port() {
  const int descriptor = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  ::bind(descriptor, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  ::getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &length);
  ::close(descriptor);
  return std::to_string(ntohs(address.sin_port));
}

// Returns the variables that Slurm sets for one of two tasks on one machine.
inline Environment slurm_task(int rank, const std::string& port) {
  return {{"SLURM_PROCID", std::to_string(rank)},
          {"SLURM_LOCALID", std::to_string(rank)},
          {"SLURM_NTASKS", "2"},
          {"SLURM_NNODES", "1"},
          {"SLURM_JOB_ID", "77"},
          {"SLURM_STEP_ID", "0"},
          {"MASTER_PORT", port}};
}

}  // namespace finetune::testing
