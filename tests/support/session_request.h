// SPDX-License-Identifier: MIT
#pragma once

#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <vector>

// Messages between a test and `session_server --socket`, over a pair of SOCK_SEQPACKET sockets: a
// request with the session's three standard streams; then its process number, and its end.
namespace finetune::testing {

struct SessionRequest {
  std::string program;  // the file of the program
  std::string folder;   // working directory
  std::string max_file_bytes;
  std::map<std::string, std::string> environment;
  std::vector<std::string> words;
};

struct SessionEnd {
  int status = 0;  // of wait4()
  int64_t peak_kib = 0;
};

// The kernel refuses longer messages.
inline constexpr size_t kLongestRequest = 100'000;

inline std::string text_of(const SessionRequest& request) {
  std::vector<std::string> parts = {request.program, request.folder, request.max_file_bytes,
                                    std::to_string(request.environment.size())};
  for (const auto& [name, value] : request.environment) {
    parts.push_back(name);
    parts.push_back(value);
  }
  parts.insert(parts.end(), request.words.begin(), request.words.end());
  std::string text;
  for (const std::string& part : parts) text += part + '\0';
  return text;
}

inline SessionRequest request_of(const std::string& text) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin < text.size();) {
    parts.emplace_back(text.c_str() + begin);
    begin += parts.back().size() + 1;
  }
  SessionRequest request{.program = parts.at(0),
                         .folder = parts.at(1),
                         .max_file_bytes = parts.at(2),
                         .environment = {},
                         .words = {}};
  size_t at = 4;
  for (size_t left = std::stoul(parts.at(3)); left > 0; --left, at += 2) {
    request.environment[parts.at(at)] = parts.at(at + 1);
  }
  request.words.assign(parts.begin() + static_cast<std::ptrdiff_t>(at), parts.end());
  return request;
}

// Libraries read these variables while they are loaded, which for a fork was long ago.
inline bool is_read_early(const std::string& variable) {
  for (const char* early : {"OMP_", "GOMP_", "KMP_", "MKL_", "LD_", "GLIBC_", "MALLOC_", "TORCH",
                            "PYTORCH", "ATEN_", "CUDA", "FINETUNE_TEST_"}) {
    if (variable.starts_with(early)) return true;
  }
  return false;
}

// A message of text and three descriptors; refers to the text.
class StreamsMessage {
 public:
  explicit StreamsMessage(std::string& text)
      : part_{.iov_base = text.data(), .iov_len = text.size()} {
    message_.msg_iov = &part_;
    message_.msg_iovlen = 1;
    message_.msg_control = control_.data();
    message_.msg_controllen = control_.size();
  }
  StreamsMessage(const StreamsMessage&) = delete;
  StreamsMessage& operator=(const StreamsMessage&) = delete;

  msghdr* get() { return &message_; }
  [[nodiscard]] cmsghdr* rights() { return CMSG_FIRSTHDR(&message_); }

 private:
  iovec part_;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(std::array<int, 3>))> control_ = {};
  msghdr message_ = {};
};

// Returns false if the other side is gone.
inline bool send_request(int socket, std::string text, std::array<int, 3> streams) {
  StreamsMessage message(text);
  cmsghdr* const rights = message.rights();
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof(streams));
  std::memcpy(CMSG_DATA(rights), streams.data(), sizeof(streams));
  return ::sendmsg(socket, message.get(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size());
}

// Returns nullopt if the other side is gone.
inline std::optional<std::string> receive_request(int socket, std::array<int, 3>& streams) {
  std::string text(2 * kLongestRequest, '\0');
  StreamsMessage message(text);
  const ssize_t size = ::recvmsg(socket, message.get(), MSG_CMSG_CLOEXEC);
  const cmsghdr* const rights = message.rights();
  if (size <= 0 || rights == nullptr) return std::nullopt;
  std::memcpy(streams.data(), CMSG_DATA(rights), sizeof(streams));
  text.resize(static_cast<size_t>(size));
  return text;
}

template <class Value>
bool send_value(int socket, const Value& value) {
  return ::send(socket, &value, sizeof(value), MSG_NOSIGNAL) == sizeof(value);
}

template <class Value>
bool receive_value(int socket, Value& value) {
  return ::recv(socket, &value, sizeof(value), 0) == sizeof(value);
}

}  // namespace finetune::testing
