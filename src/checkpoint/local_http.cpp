// SPDX-License-Identifier: MIT
#include "checkpoint/local_http.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <utility>

#include "finetune/base/clock.h"
#include "finetune/base/error.h"
#include "finetune/base/text.h"

namespace finetune::checkpoint {
namespace {

constexpr size_t kBufferBytes = size_t{64} << 10;
constexpr size_t kLongestLine = size_t{64} << 10;

thread_local std::function<void()> look_while_waiting;

[[noreturn]] void broken(const std::string& why) {
  throw Error(ErrorKind::kIo, "the connection to rclone broke: " + why, EPIPE);
}

std::string lowered(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) {
    return static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  });
  return text;
}

uint64_t number_in(std::string_view text, int base) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, base);
  if (error != std::errc() || end == text.data()) broken("its reply has no length");
  return number;
}

}  // namespace

WhileWaiting::WhileWaiting(std::function<void()> look) { look_while_waiting = std::move(look); }

WhileWaiting::~WhileWaiting() { look_while_waiting = nullptr; }

LocalHttpRequest::LocalHttpRequest(uint16_t port, std::string_view method, std::string_view target,
                                   std::string_view headers, std::string_view body, double timeout)
    : timeout_(timeout) {
  socket_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (socket_ < 0) broken(std::strerror(errno));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  try {
    if (::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
      broken(std::strerror(errno));
    }
    std::string text = std::string(method) + " " + std::string(target) +
                       " HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n" +
                       std::string(headers) + "Content-Length: " + std::to_string(body.size()) +
                       "\r\n\r\n";
    text += body;
    for (size_t sent = 0; sent < text.size();) {
      const ssize_t count = ::send(socket_, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) broken(std::strerror(errno));
      sent += static_cast<size_t>(count);
    }
    read_head();
  } catch (...) {
    ::close(socket_);
    throw;
  }
}

LocalHttpRequest::~LocalHttpRequest() { ::close(socket_); }

void LocalHttpRequest::wait_for_bytes() const {
  constexpr int kLookMilliseconds = 200;
  const double end = Clock::steady().now() + timeout_;
  pollfd one = {.fd = socket_, .events = POLLIN, .revents = 0};
  while (::poll(&one, 1, kLookMilliseconds) <= 0) {
    if (look_while_waiting) look_while_waiting();
    if (Clock::steady().now() > end) {
      throw Error(ErrorKind::kIo, format_text("no answer for {} s", static_cast<int>(timeout_)),
                  ETIMEDOUT);
    }
  }
}

size_t LocalHttpRequest::receive(char* data, size_t size) {
  if (buffered_from_ == buffer_.size()) {
    const bool is_direct = size >= kBufferBytes;
    buffer_.resize(is_direct ? 0 : kBufferBytes);
    buffered_from_ = 0;
    ssize_t count = 0;
    wait_for_bytes();
    do {
      count = ::recv(socket_, is_direct ? data : buffer_.data(), kBufferBytes, 0);
    } while (count < 0 && errno == EINTR);
    if (!is_direct) buffer_.resize(static_cast<size_t>(std::max<ssize_t>(count, 0)));
    if (count < 0) broken(std::strerror(errno));
    if (is_direct || count == 0) return static_cast<size_t>(count);
  }
  const size_t count = std::min(size, buffer_.size() - buffered_from_);
  std::memcpy(data, buffer_.data() + buffered_from_, count);
  buffered_from_ += count;
  return count;
}

std::string LocalHttpRequest::receive_line() {
  std::string line;
  while (true) {
    char c = 0;
    if (receive(&c, 1) == 0) broken("it ended within its reply");
    if (c == '\n') break;
    if (line.size() == kLongestLine) broken("its reply has an endless line");
    line += c;
  }
  if (line.ends_with('\r')) line.pop_back();
  return line;
}

void LocalHttpRequest::read_head() {
  while (true) {
    const std::string first = receive_line();  // "HTTP/1.1 200 OK"
    const size_t space = first.find(' ');
    if (!first.starts_with("HTTP/1.") || space == std::string::npos) broken("it is no HTTP server");
    status_ = static_cast<int>(number_in(std::string_view(first).substr(space + 1, 3), 10));
    ends_with_connection_ = true;
    for (std::string line = receive_line(); !line.empty(); line = receive_line()) {
      const size_t colon = line.find(':');
      if (colon == std::string::npos) continue;
      const std::string name = lowered(line.substr(0, colon));
      std::string value = line.substr(colon + 1);
      value.erase(0, value.find_first_not_of(' '));
      if (name == "content-length") {
        left_ = number_in(value, 10);
        ends_with_connection_ = false;
      } else if (name == "transfer-encoding" && lowered(value) == "chunked") {
        is_chunked_ = true;
        ends_with_connection_ = false;
      }
    }
    if (status_ != 100) return;
  }
}

size_t LocalHttpRequest::read(char* data, size_t size) {
  if (is_over_ || size == 0) return 0;
  if (is_chunked_ && left_ == 0) {
    if (!is_first_chunk_) (void)receive_line();  // the end of the chunk before
    is_first_chunk_ = false;
    left_ = number_in(receive_line(), 16);
    if (left_ == 0) {
      is_over_ = true;
      return 0;
    }
  }
  if (!is_chunked_ && !ends_with_connection_ && left_ == 0) {
    is_over_ = true;
    return 0;
  }
  const size_t most = ends_with_connection_ ? size : std::min<uint64_t>(size, left_);
  const size_t count = receive(data, most);
  if (count == 0) {
    if (!ends_with_connection_) broken("it ended within its reply");
    is_over_ = true;
  }
  if (!ends_with_connection_) left_ -= count;
  return count;
}

std::string LocalHttpRequest::read_all(size_t limit) {
  std::string body;
  std::array<char, 8192> block{};
  while (const size_t count = read(block.data(), block.size())) {
    if (body.size() + count > limit) broken("its reply is too long");
    body.append(block.data(), count);
  }
  return body;
}

std::string url_path(std::string_view path) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string result;
  for (const char c : path) {
    const auto byte = static_cast<unsigned char>(c);
    const bool is_plain = (byte >= '0' && byte <= '9') || (byte >= 'A' && byte <= 'Z') ||
                          (byte >= 'a' && byte <= 'z') ||
                          std::string_view("/-_.~").find(c) != std::string_view::npos;
    if (is_plain) {
      result += c;
    } else {
      result += '%';
      result += kDigits[byte >> 4];
      result += kDigits[byte & 15];
    }
  }
  return result;
}

}  // namespace finetune::checkpoint
