// SPDX-License-Identifier: MIT
#include "finetune/base/mount.h"

#include <linux/magic.h>
#include <sys/vfs.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace finetune {
namespace {

// Decodes blanks and backslashes, which the kernel writes as three octal digits.
std::string unescape(std::string_view text) {
  const auto is_octal = [](char c) { return c >= '0' && c <= '7'; };
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size() && is_octal(text[i + 1]) && is_octal(text[i + 2]) &&
        is_octal(text[i + 3])) {
      const int value = (text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 + (text[i + 3] - '0');
      out += static_cast<char>(static_cast<unsigned char>(value));
      i += 3;
    } else {
      out += text[i];
    }
  }
  return out;
}

// "36 35 98:0 /root /point rw,noatime master:1 - type source options"
std::optional<Mount> parse_line(const std::string& line) {
  std::istringstream words(line);
  std::string word;
  Mount mount;
  for (int i = 0; i < 5; ++i) {
    if (!(words >> word)) return std::nullopt;
  }
  mount.point = unescape(word);
  while (words >> word && word != "-") {
  }
  if (!(words >> mount.type >> word)) return std::nullopt;
  mount.source = unescape(word);
  return mount;
}

bool lies_below(std::string_view path, std::string_view folder) {
  if (folder == "/") return !path.empty() && path.front() == '/';
  return path.substr(0, folder.size()) == folder &&
         (path.size() == folder.size() || path[folder.size()] == '/');
}

void add_test_mounts(std::vector<Mount>& mounts) {
  const char* text = std::getenv("FINETUNE_TEST_MOUNT");
  if (text == nullptr) return;
  std::istringstream entries(text);
  for (std::string entry; std::getline(entries, entry, ':');) {
    const size_t equals = entry.rfind('=');
    if (equals == std::string::npos) continue;
    mounts.push_back({.point = resolved_path(entry.substr(0, equals)),
                      .type = entry.substr(equals + 1),
                      .source = "test"});
  }
}

struct NamedMagic {
  int64_t magic;
  const char* type;
};

// File systems that mountinfo and is_remote_type() distinguish. Those without a constant in
// linux/magic.h have the number that statfs(2) documents.
constexpr std::array<NamedMagic, 18> kMagics = {{{EXT4_SUPER_MAGIC, "ext4"},
                                                 {XFS_SUPER_MAGIC, "xfs"},
                                                 {BTRFS_SUPER_MAGIC, "btrfs"},
                                                 {TMPFS_MAGIC, "tmpfs"},
                                                 {OVERLAYFS_SUPER_MAGIC, "overlay"},
                                                 {F2FS_SUPER_MAGIC, "f2fs"},
                                                 {0x2FC12FC1, "zfs"},
                                                 {MSDOS_SUPER_MAGIC, "vfat"},
                                                 {PROC_SUPER_MAGIC, "proc"},
                                                 {FUSE_SUPER_MAGIC, "fuse"},
                                                 {NFS_SUPER_MAGIC, "nfs"},
                                                 {CIFS_SUPER_MAGIC, "cifs"},
                                                 {SMB2_SUPER_MAGIC, "smb3"},
                                                 {SMB_SUPER_MAGIC, "smbfs"},
                                                 {V9FS_MAGIC, "9p"},
                                                 {AFS_SUPER_MAGIC, "afs"},
                                                 {CODA_SUPER_MAGIC, "coda"},
                                                 {CEPH_SUPER_MAGIC, "ceph"}}};

std::string type_of_magic(int64_t magic) {
  const auto* found = std::find_if(kMagics.begin(), kMagics.end(),
                                   [&](const NamedMagic& known) { return known.magic == magic; });
  return found == kMagics.end() ? "unknown" : found->type;
}

// The kernel lists only mounts whose mount point is reachable. In a chroot into a plain folder the
// mount that contains this folder is not listed; statfs() still identifies its file system.
std::optional<Mount> unlisted_mount(std::string path) {
  while (!path.empty()) {
    struct statfs status = {};
    if (::statfs(path.c_str(), &status) == 0) {
      return Mount{.point = "/", .type = type_of_magic(status.f_type), .source = ""};
    }
    if (path == "/") break;
    path = std::filesystem::path(path).parent_path();
  }
  return std::nullopt;
}

}  // namespace

std::vector<Mount> parse_mounts(std::string_view mountinfo) {
  std::vector<Mount> mounts;
  std::istringstream lines{std::string(mountinfo)};
  for (std::string line; std::getline(lines, line);) {
    if (std::optional<Mount> mount = parse_line(line)) mounts.push_back(std::move(*mount));
  }
  return mounts;
}

std::optional<Mount> find_mount(const std::vector<Mount>& mounts, std::string_view path) {
  const Mount* found = nullptr;
  for (const Mount& mount : mounts) {
    if (!lies_below(path, mount.point)) continue;
    if (found == nullptr || mount.point.size() >= found->point.size()) found = &mount;
  }
  return found == nullptr ? std::nullopt : std::optional<Mount>(*found);
}

std::string resolved_path(const std::string& path) {
  std::error_code error;
  std::filesystem::path resolved = std::filesystem::weakly_canonical(path, error);
  // A dead mount cannot be accessed, but its name is sufficient.
  if (error) resolved = std::filesystem::absolute(path, error).lexically_normal();
  std::string text = resolved.string();
  while (text.size() > 1 && text.back() == '/') text.pop_back();
  return text;
}

std::optional<Mount> mount_of(const std::string& path, std::string_view mountinfo) {
  std::vector<Mount> mounts = parse_mounts(mountinfo);
  add_test_mounts(mounts);
  const std::string resolved = resolved_path(path);
  std::optional<Mount> mount = find_mount(mounts, resolved);
  return mount ? mount : unlisted_mount(resolved);
}

std::optional<Mount> mount_of(const std::string& path) {
  std::ifstream stream("/proc/self/mountinfo");
  std::stringstream text;
  text << stream.rdbuf();
  return mount_of(path, text.str());
}

bool is_remote_type(std::string_view type) {
  constexpr std::array<std::string_view, 14> kNetwork = {
      "nfs", "nfs4", "cifs",  "smb3", "smbfs", "9p",        "drvfs",
      "afs", "coda", "ncpfs", "ceph", "davfs", "glusterfs", "gcsfuse"};
  constexpr std::array<std::string_view, 9> kLocalPrograms = {
      "fuse.fuse-overlayfs", "fuse.lxcfs",   "fuse.mergerfs", "fuse.bindfs", "fuse.gocryptfs",
      "fuse.encfs",          "fuse.ntfs-3g", "fuse.exfat",    "fuse.unionfs"};
  if (std::find(kNetwork.begin(), kNetwork.end(), type) != kNetwork.end()) return true;
  if (type != "fuse" && type.substr(0, 5) != "fuse.") return false;
  return std::find(kLocalPrograms.begin(), kLocalPrograms.end(), type) == kLocalPrograms.end();
}

}  // namespace finetune
