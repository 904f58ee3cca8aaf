// SPDX-License-Identifier: MIT
#include "checkpoint/local_http.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <string>
#include <thread>

#include "finetune/base/error.h"

namespace finetune::checkpoint {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using ::testing::ThrowsMessage;

// Accepts connections on the loopback and answers none.
class Silence {
 public:
  Silence() {
    listener_ = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* const generic = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(::bind(listener_, generic, size), 0);
    EXPECT_EQ(::listen(listener_, 1), 0);
    EXPECT_EQ(::getsockname(listener_, generic, &size), 0);
    port_ = ntohs(address.sin_port);
  }
  ~Silence() { ::close(listener_); }
  Silence(const Silence&) = delete;
  Silence& operator=(const Silence&) = delete;

  [[nodiscard]] uint16_t port() const { return port_; }
  [[nodiscard]] int accept() const { return ::accept(listener_, nullptr, nullptr); }

 private:
  int listener_ = -1;
  uint16_t port_ = 0;
};

// Answers one request with a text, and keeps the request.
class OneReply {
 public:
  explicit OneReply(std::string reply) : reply_(std::move(reply)), thread_([this] { serve(); }) {}
  ~OneReply() {
    if (thread_.joinable()) thread_.join();
  }
  OneReply(const OneReply&) = delete;
  OneReply& operator=(const OneReply&) = delete;

  [[nodiscard]] uint16_t port() const { return listener_.port(); }
  std::string request() {
    thread_.join();
    return request_;
  }

 private:
  void serve() {
    const int connection = listener_.accept();
    std::array<char, 4096> block{};
    while (request_.find("\r\n\r\n") == std::string::npos) {
      const ssize_t count = ::recv(connection, block.data(), block.size(), 0);
      if (count <= 0) break;
      request_.append(block.data(), static_cast<size_t>(count));
    }
    (void)::send(connection, reply_.data(), reply_.size(), MSG_NOSIGNAL);
    ::close(connection);
  }

  Silence listener_;
  std::string reply_;
  std::string request_;
  std::thread thread_;  // last: it uses the members above
};

std::string body_of(const std::string& reply) {
  OneReply server(reply);
  LocalHttpRequest request(server.port(), "POST", "/call", "X-Word: 1\r\n");
  return request.read_all(1 << 20);
}

TEST(LocalHttp, SendsARequestAndReadsItsReply) {
  OneReply server("HTTP/1.1 404 Not Found\r\nContent-Length: 5\r\n\r\nhello");
  LocalHttpRequest request(server.port(), "GET", "/a%20b", "Range: bytes=3-\r\n");
  EXPECT_EQ(request.status(), 404);
  EXPECT_EQ(request.read_all(100), "hello");
  const std::string sent = server.request();
  EXPECT_THAT(sent, StartsWith("GET /a%20b HTTP/1.1\r\nHost: 127.0.0.1\r\n"));
  EXPECT_THAT(sent, HasSubstr("\r\nRange: bytes=3-\r\n"));
}

TEST(LocalHttp, ReadsBodiesInChunksAndToTheEndOfTheConnection) {
  EXPECT_EQ(body_of("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
                    "3\r\nabc\r\n10\r\n0123456789abcdef\r\n0\r\n\r\n"),
            "abc0123456789abcdef");
  EXPECT_EQ(body_of("HTTP/1.0 200 OK\r\n\r\nall of it"), "all of it");
  EXPECT_EQ(body_of("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx"),
            "x");
  const std::string large(200'000, 'a');
  EXPECT_EQ(body_of("HTTP/1.1 200 OK\r\ncontent-length: 200000\r\n\r\n" + large), large);
}

TEST(LocalHttp, RefusesRepliesThatEndEarlyOrAreNone) {
  for (const char* reply :
       {"", "HTTP/1.1", "HTTP/1.1 200 OK\r\n", "SSH-2.0-x\r\n\r\n", "HTTP/1.1 xx\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nhello",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n"}) {
    SCOPED_TRACE(reply);
    EXPECT_THAT([&] { (void)body_of(reply); },
                ThrowsMessage<Error>(StartsWith("the connection to rclone broke: ")));
  }
}

TEST(LocalHttp, EncodesPaths) { EXPECT_EQ(url_path("a b/ü:[x]~"), "a%20b/%C3%BC%3A%5Bx%5D~"); }

TEST(LocalHttp, GivesUpAServerThatIsSilent) {
  const Silence server;
  EXPECT_THAT([&] { LocalHttpRequest(server.port(), "POST", "/call", "", "", 1); },
              ThrowsMessage<Error>(HasSubstr("no answer for 1 s")));
}

TEST(LocalHttp, CanBeStoppedWhileItWaits) {
  const Silence server;
  int looks = 0;
  const WhileWaiting stops([&] {
    if (++looks == 2) throw Error(ErrorKind::kIo, "enough");
  });
  EXPECT_THAT([&] { LocalHttpRequest(server.port(), "POST", "/call", ""); },
              ThrowsMessage<Error>(HasSubstr("enough")));
}

}  // namespace
}  // namespace finetune::checkpoint
