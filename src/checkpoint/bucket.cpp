// SPDX-License-Identifier: MIT
#include "finetune/checkpoint/bucket.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <future>
#include <limits>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "checkpoint/rclone.h"
#include "finetune/base/error.h"
#include "finetune/base/text.h"
#include "finetune/base/thread_pool.h"
#include "finetune/base/trash_safe.h"

namespace finetune::checkpoint {
namespace {

using Json = nlohmann::ordered_json;

// rclone sends parts of a large file in parallel, too; small ones are a matter of round trips.
constexpr int64_t kLargeAtOnce = 4;
constexpr int64_t kSmallAtOnce = 20;
constexpr uint64_t kLeastLarge = uint64_t{8} << 20;
constexpr std::chrono::milliseconds kTransferPoll{20};
// rclone's defaults for S3: larger files are sent in parts, each a request.
constexpr uint64_t kLeastParts = uint64_t{200} << 20;
constexpr uint64_t kPartBytes = uint64_t{5} << 20;
constexpr uint64_t kMostInMemory = uint64_t{1} << 31;
constexpr int kReadAttempts = 2;
constexpr char kRemote[] = "finetune";  // as rclone's environment variables name the bucket
constexpr std::string_view kConfigured = "rclone:";

struct Store {
  std::string_view scheme;
  const char* type;  // rclone's
};
constexpr std::array<Store, 3> kStores = {
    {{"s3://", "s3"}, {"gs://", "google cloud storage"}, {"azure://", "azureblob"}}};

const Store* store_of(std::string_view location) {
  const auto* const found = std::ranges::find_if(
      kStores, [&](const Store& store) { return location.starts_with(store.scheme); });
  return found == kStores.end() ? nullptr : found;
}

// What of a location names it for rclone: "finetune:bucket" and what follows it in paths.
struct Root {
  std::string fs;      // "finetune:bucket" or "REMOTE:"
  std::string before;  // of paths: "s3://bucket" or "rclone:REMOTE:"
};

Root root_of(const std::string& location) {
  if (const Store* store = store_of(location)) {
    const size_t slash = location.find('/', store->scheme.size());
    const std::string before = location.substr(0, slash);
    return {.fs = std::string(kRemote) + ":" + before.substr(store->scheme.size()),
            .before = before};
  }
  // A remote may distinguish its own folder from its root: "rclone:REMOTE:/absolute".
  const size_t colon = location.find(':', kConfigured.size());
  const bool is_absolute = location.compare(colon + 1, 1, "/") == 0;
  const std::string before = location.substr(0, colon + (is_absolute ? 2 : 1));
  return {.fs = before.substr(kConfigured.size()), .before = before};
}

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// The remote of a URL, as rclone reads it from variables, with the standard ones of its cloud.
Rclone::Environment remote_of(const std::string& location) {
  const Store* const store = store_of(location);
  // A Drive keeps what is deleted in its trash, where it counts for a month.
  Rclone::Environment all = {{"RCLONE_DRIVE_USE_TRASH", "false"}};
  if (store == nullptr) return all;
  const std::string prefix = "RCLONE_CONFIG_FINETUNE_";
  all[prefix + "TYPE"] = store->type;
  all[prefix + "ENV_AUTH"] = "true";
  const bool is_azure = store->scheme == "azure://";
  // A bucket that is missing is an error; making one would need rights that few keys have.
  all[prefix + (is_azure ? "NO_CHECK_CONTAINER" : "NO_CHECK_BUCKET")] = "true";
  // An upload replaces what is there, so nobody needs to look before. (A Drive would have two files
  // of one name.)
  all["RCLONE_NO_CHECK_DEST"] = "true";
  if (store->scheme == "s3://") {
    all[prefix + "NO_HEAD"] = "true";  // after an upload, whose reply has the hash
    std::string endpoint = variable("AWS_ENDPOINT_URL_S3");
    if (endpoint.empty()) endpoint = variable("AWS_ENDPOINT_URL");
    if (!endpoint.empty()) all[prefix + "ENDPOINT"] = endpoint;
    all[prefix + "PROVIDER"] = endpoint.empty() ? "AWS" : "Other";
    std::string region = variable("AWS_REGION");
    if (region.empty()) region = variable("AWS_DEFAULT_REGION");
    if (!region.empty()) all[prefix + "REGION"] = region;
  } else if (is_azure && !variable("AZURE_STORAGE_ACCOUNT").empty()) {
    all[prefix + "ACCOUNT"] = variable("AZURE_STORAGE_ACCOUNT");
  }
  return all;
}

// An object that is read in order by one request, as long as the reads follow each other.
class BucketReader final : public ReadableFile {
 public:
  BucketReader(std::shared_ptr<Rclone> rclone, std::string fs, std::string remote, std::string path,
               uint64_t size)
      : rclone_(std::move(rclone)),
        fs_(std::move(fs)),
        remote_(std::move(remote)),
        path_(std::move(path)),
        size_(size) {}

  [[nodiscard]] uint64_t size() const override { return size_; }

  void read_at(uint64_t offset, void* data, size_t size) const override {
    if (offset > size_ || size > size_ - offset) {
      throw Error(ErrorKind::kIo, "'" + path_ + "' ends before byte " +
                                      std::to_string(offset + size) + ", it may have been changed");
    }
    const std::lock_guard lock(mutex_);
    const std::string what = "cannot read '" + path_ + "'";
    if (!request_ || position_ != offset) {
      request_.reset();
      request_ = rclone_->get(fs_, remote_, offset, what);
      position_ = offset;
    }
    try {
      auto* const target = static_cast<char*>(data);
      for (size_t done = 0; done < size;) {
        const size_t count = request_->read(target + done, size - done);
        if (count == 0) throw Error(ErrorKind::kIo, what + ": it ended too early", EIO);
        done += count;
        position_ += count;
      }
    } catch (...) {
      request_.reset();
      throw;
    }
  }

 private:
  std::shared_ptr<Rclone> rclone_;
  std::string fs_;
  std::string remote_;
  std::string path_;
  uint64_t size_;
  mutable std::mutex mutex_;
  mutable std::unique_ptr<LocalHttpRequest> request_;
  mutable uint64_t position_ = 0;
};

class BucketFiles final : public FileSystem, public ObjectStore {
 public:
  explicit BucketFiles(const std::string& location)
      : root_(root_of(location)), rclone_(std::make_shared<Rclone>(remote_of(location))) {}

  std::unique_ptr<WritableFile> create(const std::string& path) override;

  std::unique_ptr<WritableFile> append(const std::string& path) override { refuse(path); }

  std::unique_ptr<ReadableFile> open(const std::string& path) override {
    const std::string what = "cannot open '" + path + "'";
    const std::optional<Json> item = look_at(path);
    if (!item) throw Error(ErrorKind::kIo, what + ": it is not there", ENOENT);
    if (item->value("IsDir", false)) {
      throw Error(ErrorKind::kIo, what + ": it is a folder", EISDIR);
    }
    const uint64_t size = size_of(*item, what);
    reads_ += 2;  // rclone asks for its size again
    received_ += size;
    return std::make_unique<BucketReader>(rclone_, root_.fs, remote(path), path, size);
  }

  // Without asking for its size before: a small object that is replaced now is read whole, too.
  std::string read_all(const std::string& path, uint64_t limit) override {
    const std::string what = "cannot read '" + path + "'";
    for (int attempt = 1;; ++attempt) {
      reads_ += 2;  // rclone asks for its size
      try {
        std::string content = rclone_->get(root_.fs, remote(path), {}, what)
                                  ->read_all(std::min(limit, kMostInMemory));
        received_ += content.size();
        return content;
      } catch (const Error& error) {
        if (error.system_error() == ENOENT) check_bucket();
        if (error.system_error() != EPIPE) throw;
        if (attempt == kReadAttempts) throw Error(error.kind(), what + ": " + error.what(), EPIPE);
      }
    }
  }

  // A bucket has no folders.
  void make_directories(const std::string&) override {}
  void make_directory(const std::string&) override {}
  void sync_directory(const std::string&) override {}
  void remove_directory(const std::string&) override {}

  void rename(const std::string& from, const std::string& to) override { move_file(from, to); }

  // A folder's objects are copied and deleted by the store one by one.
  void rename_new(const std::string& from, const std::string& to) override {
    if (type(to) != FileType::kMissing) {
      throw Error(ErrorKind::kIo, "cannot rename '" + from + "' to '" + to + "': it is there",
                  EEXIST);
    }
    if (type(from) != FileType::kDirectory) return move_file(from, to);
    (void)rclone_->call("sync/move", {{"srcFs", whole(from)}, {"dstFs", whole(to)}},
                        "cannot rename '" + from + "' to '" + to + "'");
  }

  void remove_file(const std::string& path) override {
    (void)rclone_->call("operations/deletefile", {{"fs", root_.fs}, {"remote", remote(path)}},
                        "cannot delete '" + path + "'");
  }

  void remove_tree(const std::string& path) override {
    switch (type(path)) {
      case FileType::kMissing:
        return;
      case FileType::kDirectory:
        (void)rclone_->call("operations/purge", {{"fs", root_.fs}, {"remote", remote(path)}},
                            "cannot delete '" + path + "'");
        return;
      default:
        remove_file(path);
    }
  }

  void truncate(const std::string& path, uint64_t) override { refuse(path); }

  FileType type(const std::string& path) override {
    if (remote(path).empty()) return FileType::kDirectory;
    const std::optional<Json> item = look_at(path);
    if (!item) return FileType::kMissing;
    return item->value("IsDir", false) ? FileType::kDirectory : FileType::kFile;
  }

  std::vector<std::string> list(const std::string& path) override {
    std::vector<std::string> names;
    for (const auto& item : entries(path)) names.push_back(item.first);
    return names;
  }

  // Empty where nothing is below the path.
  std::map<std::string, Entry> entries(const std::string& path) override {
    std::map<std::string, Entry> found;
    Json reply;
    try {
      reply = list_call(remote(path), path);
    } catch (const Error& error) {
      if (error.system_error() != ENOENT) throw;
      check_bucket();
      return found;
    }
    const Json items = reply.value("list", Json());
    if (!items.is_array()) return found;
    for (const Json& item : items) {
      if (!item.is_object()) continue;
      const std::string name = item.value("Name", std::string());
      if (name.empty()) continue;
      Entry entry{.type = item.value("IsDir", false) ? FileType::kDirectory : FileType::kFile};
      const Json size = item.value("Size", Json());
      if (entry.type == FileType::kFile && size.is_number_integer() && size.get<int64_t>() >= 0) {
        entry.bytes = size.get<uint64_t>();
      }
      found[name] = entry;
    }
    return found;
  }

  uint64_t free_bytes(const std::string&) override { return std::numeric_limits<uint64_t>::max(); }

  ObjectStore* object_store() override { return this; }

  void upload(const std::vector<Transfer>& files, const std::function<void()>& may_continue,
              const std::function<void(const Transfer&)>& arrived) override {
    transfer(files, may_continue, arrived,
             [this](const Transfer& file) { put(file.from, file.to); });
  }

  void download(const std::vector<Transfer>& files, const std::function<void()>& may_continue,
                const std::function<void(const Transfer&)>& arrived) override {
    transfer(files, may_continue, arrived, [this](const Transfer& file) {
      reads_ += 2;  // its size, and its content
      received_ += file.bytes;
      (void)rclone_->call("operations/copyfile",
                          {{"srcFs", root_.fs},
                           {"srcRemote", remote(file.from)},
                           {"dstFs", folder_of(file.to)},
                           {"dstRemote", file_name(file.to)}},
                          "cannot read '" + file.from + "'");
    });
  }

  [[nodiscard]] bool checks_uploads() override {
    const std::lock_guard lock(mutex_);
    if (!has_hash_) {
      const Json reply =
          rclone_->call("operations/fsinfo", {{"fs", root_.fs}}, "cannot look at " + root_.before);
      const Json hashes = reply.value("Hashes", Json());
      has_hash_ = hashes.is_array() && !hashes.empty();
    }
    return *has_hash_;
  }

  [[nodiscard]] bool write_new(const std::string& path, std::string_view content) override {
    const std::string local = scratch_file();
    {
      const std::unique_ptr<WritableFile> file = FileSystem::local().create(local);
      file->write(content);
      file->close();
    }
    bool is_written = true;
    try {
      const Json condition = {{{"Key", "If-None-Match"}, {"Value", "*"}}};
      put(local, path, {{"UploadHeaders", condition}});
    } catch (const Error& error) {
      const std::string_view what = error.what();
      if (what.find("PreconditionFailed") != std::string_view::npos) {
        is_written = false;
      } else if (knows_conditions(what)) {
        FileSystem::local().remove_file(local);
        throw;
      } else {
        put(local, path);
      }
    }
    FileSystem::local().remove_file(local);
    return is_written;
  }

  [[nodiscard]] Use use() const override {
    return {.writes = writes_, .reads = reads_, .sent = sent_, .received = received_};
  }

  // Uploads a local file; what had the name is replaced once all of it has arrived.
  void put(const std::string& local, const std::string& path, const Json& settings = {}) {
    const uint64_t bytes = FileSystem::local().open(local)->size();
    writes_ += bytes < kLeastParts ? 1 : 2 + static_cast<int64_t>(bytes / kPartBytes);
    sent_ += bytes;
    Json arguments = {{"srcFs", folder_of(local)},
                      {"srcRemote", file_name(local)},
                      {"dstFs", root_.fs},
                      {"dstRemote", remote(path)}};
    if (!settings.is_null()) arguments["_config"] = settings;
    (void)rclone_->call("operations/copyfile", arguments, "cannot write '" + path + "'");
  }

  [[nodiscard]] std::string scratch_file() {
    return join_path(rclone_->scratch_folder(), format_text("{}", ++scratch_files_));
  }

 private:
  [[noreturn]] static void refuse(const std::string& path) {
    throw Error(ErrorKind::kIo, "'" + path + "' is in a bucket, where objects are only replaced",
                ENOTSUP);
  }

  // Whether the root is a remote of rclone's configuration, or its "/", and no bucket.
  [[nodiscard]] bool is_remote() const {
    return root_.fs.ends_with(':') || root_.fs.ends_with('/');
  }

  Json list_call(const std::string& remote, const std::string& shown) {
    ++writes_;
    return rclone_->call("operations/list",
                         {{"fs", root_.fs},
                          {"remote", remote},
                          {"opt", {{"noModTime", true}, {"noMimeType", true}}}},
                         "cannot list '" + shown + "'");
  }

  // Nothing is in a bucket that is not there, either. Looks once.
  void check_bucket() {
    if (is_there_ || is_remote()) return;
    try {
      (void)list_call("", root_.before);
    } catch (const Error& error) {
      if (error.system_error() != ENOENT) throw;
      throw Error(ErrorKind::kIo,
                  "there is no bucket '" + root_.before + "'; check its name, or make it", EACCES);
    }
    is_there_ = true;
  }

  // rclone's S3 sends the condition, older ones and its other stores refuse it or the store does.
  static bool knows_conditions(std::string_view problem) {
    return problem.find("to set key") == std::string_view::npos &&
           problem.find("NotImplemented") == std::string_view::npos;
  }

  static std::string folder_of(const std::string& local) {
    const size_t slash = local.rfind('/');
    FT_CHECK(slash != std::string::npos, "a local file without a folder: " + local);
    return slash == 0 ? "/" : local.substr(0, slash);
  }

  void transfer(const std::vector<Transfer>& files, const std::function<void()>& may_continue,
                const std::function<void(const Transfer&)>& arrived,
                const std::function<void(const Transfer&)>& move) {
    if (files.empty()) return;
    rclone_->ensure();  // it ends with the thread that starts it, which must not be one of these
    const auto count = static_cast<int64_t>(files.size());
    std::atomic<bool> is_abandoned = false;
    ThreadPool large(std::min(kLargeAtOnce, count));
    ThreadPool small(std::min(kSmallAtOnce, count));
    std::vector<std::future<void>> ends;
    for (const Transfer& file : files) {
      ThreadPool& pool = file.bytes < kLeastLarge ? small : large;
      ends.push_back(pool.submit([&] {
        if (!is_abandoned) move(file);
      }));
    }
    std::exception_ptr failure;
    for (size_t i = 0; i < files.size(); ++i) {
      try {
        while (ends[i].wait_for(kTransferPoll) != std::future_status::ready) may_continue();
      } catch (...) {
        is_abandoned = true;
        rclone_->stop_all();  // else the pools wait for the transfers' ends
        throw;
      }
      try {
        ends[i].get();
        arrived(files[i]);
      } catch (const std::exception&) {
        if (!failure) failure = std::current_exception();
      }
    }
    if (failure) std::rethrow_exception(failure);
  }

  [[nodiscard]] std::string remote(const std::string& path) const {
    FT_CHECK(path.starts_with(root_.before), "'" + path + "' is not in " + root_.before);
    std::string rest = path.substr(root_.before.size());
    rest.erase(0, rest.find_first_not_of('/'));
    while (rest.ends_with('/')) rest.pop_back();
    return rest;
  }
  // A folder as a file system of rclone's.
  [[nodiscard]] std::string whole(const std::string& path) const {
    return root_.fs + (is_remote() ? "" : "/") + remote(path);
  }

  std::optional<Json> look_at(const std::string& path) {
    ++reads_;
    const Json reply =
        rclone_->call("operations/stat", {{"fs", root_.fs}, {"remote", remote(path)}},
                      "cannot look at '" + path + "'");
    Json item = reply.value("item", Json());
    if (item.is_object()) return item;
    ++writes_;  // it was looked for as a folder, too
    check_bucket();
    return std::nullopt;
  }

  static uint64_t size_of(const Json& item, const std::string& what) {
    const Json size = item.value("Size", Json());
    if (!size.is_number_integer() || size.get<int64_t>() < 0) {
      throw Error(ErrorKind::kIo, what + ": it has no size");
    }
    return size.get<uint64_t>();
  }

  void move_file(const std::string& from, const std::string& to) {
    ++writes_;
    ++reads_;
    (void)rclone_->call("operations/movefile",
                        {{"srcFs", root_.fs},
                         {"srcRemote", remote(from)},
                         {"dstFs", root_.fs},
                         {"dstRemote", remote(to)}},
                        "cannot rename '" + from + "' to '" + to + "'");
  }

  Root root_;
  std::shared_ptr<Rclone> rclone_;
  std::atomic<int64_t> scratch_files_{0};
  std::atomic<bool> is_there_{false};  // the bucket itself
  std::atomic<int64_t> writes_{0};
  std::atomic<int64_t> reads_{0};
  std::atomic<uint64_t> sent_{0};
  std::atomic<uint64_t> received_{0};
  std::mutex mutex_;  // guards the member below
  std::optional<bool> has_hash_;
};

// A file of unknown size, which is complete on this machine before it is sent.
class BucketWriter final : public WritableFile {
 public:
  BucketWriter(BucketFiles& files, std::string path)
      : files_(files),
        path_(std::move(path)),
        scratch_(files.scratch_file()),
        file_(FileSystem::local().create(scratch_)) {}
  ~BucketWriter() override {
    file_.reset();
    try {
      FileSystem::local().remove_file(scratch_);
    } catch (const std::exception&) {  // its folder is deleted later
    }
  }

  using WritableFile::write;
  void write(const void* data, size_t size) override { file_->write(data, size); }
  void sync() override {}
  void close() override {
    file_->close();
    files_.put(scratch_, path_);
  }

 private:
  BucketFiles& files_;
  std::string path_;
  std::string scratch_;
  std::unique_ptr<WritableFile> file_;
};

std::unique_ptr<WritableFile> BucketFiles::create(const std::string& path) {
  return std::make_unique<BucketWriter>(*this, path);
}

}  // namespace

bool is_bucket(std::string_view location) {
  return store_of(location) != nullptr || location.starts_with(kConfigured);
}

std::string problem_of_bucket(std::string_view location) {
  const Store* const store = store_of(location);
  const std::string_view rest =
      location.substr(store != nullptr ? store->scheme.size() : kConfigured.size());
  for (size_t start = 0; start <= rest.size();) {
    const size_t end = std::min(rest.find_first_of("/:", start), rest.size());
    const std::string_view part = rest.substr(start, end - start);
    if (part == ".." || part == ".") {
      return format_text("has '{}' in it, which a bucket does not know; write the whole name",
                         std::string(part));
    }
    start = end + 1;
  }
  if (store != nullptr) {
    if (!rest.empty() && !rest.starts_with('/')) return "";
    return format_text("names no bucket; write {}BUCKET/FOLDER", std::string(store->scheme));
  }
  const size_t colon = rest.find(':');
  if (colon != std::string_view::npos && colon > 0) return "";
  return "names no remote of rclone's configuration; write rclone:REMOTE:FOLDER (`rclone config` "
         "lists them)";
}

std::shared_ptr<FileSystem> bucket_files(const std::string& location) {
  const std::string problem = problem_of_bucket(location);
  if (!problem.empty()) throw Error(ErrorKind::kConfig, "'" + location + "' " + problem);
  return std::make_shared<BucketFiles>(location);
}

std::shared_ptr<FileSystem> files_of_location(const std::string& location) {
  return is_bucket(location) ? bucket_files(location) : shared_local_files();
}

}  // namespace finetune::checkpoint
