// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <string_view>

namespace finetune::checkpoint {

// While it lives, requests of this thread call `look` several times a second as they wait for their
// replies. It may throw. Only one at a time on each thread.
class WhileWaiting {
 public:
  explicit WhileWaiting(std::function<void()> look);
  ~WhileWaiting();
  WhileWaiting(const WhileWaiting&) = delete;
  WhileWaiting& operator=(const WhileWaiting&) = delete;
};

// One request of HTTP/1.1 to a server on this machine's loopback, and its reply. All members throw
// Error(kIo) if the connection breaks. To be used from one thread.
class LocalHttpRequest {
 public:
  // `target`: encoded; `headers`: whole lines, each with its end. `timeout`: the longest time
  // without a byte of the reply, in seconds.
  LocalHttpRequest(uint16_t port, std::string_view method, std::string_view target,
                   std::string_view headers, std::string_view body = {},
                   double timeout = std::numeric_limits<double>::infinity());
  ~LocalHttpRequest();
  LocalHttpRequest(const LocalHttpRequest&) = delete;
  LocalHttpRequest& operator=(const LocalHttpRequest&) = delete;

  [[nodiscard]] int status() const { return status_; }
  // Reads up to `size` bytes of the body; 0: its end.
  [[nodiscard]] size_t read(char* data, size_t size);
  [[nodiscard]] std::string read_all(size_t limit);

 private:
  size_t receive(char* data, size_t size);  // from the buffer, then from the socket
  std::string receive_line();
  void read_head();
  void wait_for_bytes() const;

  double timeout_;
  int socket_ = -1;
  int status_ = 0;
  std::string buffer_;
  size_t buffered_from_ = 0;
  bool is_chunked_ = false;
  bool is_first_chunk_ = true;
  bool ends_with_connection_ = false;
  uint64_t left_ = 0;  // of the body, or of the chunk
  bool is_over_ = false;
};

// Encodes a path for a URL; '/' stays.
[[nodiscard]] std::string url_path(std::string_view path);

}  // namespace finetune::checkpoint
