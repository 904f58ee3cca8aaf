// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace finetune {

struct Mount {
  std::string point;   // absolute
  std::string type;    // "ext4", "fuse.drive", "nfs4", ...
  std::string source;  // the mounted device, as its file system names it
};

// Parses the lines of /proc/self/mountinfo; invalid ones are skipped.
[[nodiscard]] std::vector<Mount> parse_mounts(std::string_view mountinfo);

// Returns the mount of an absolute path without links: the one with the longest mount point above
// it, and the last of several at one point. nullopt if there is none.
[[nodiscard]] std::optional<Mount> find_mount(const std::vector<Mount>& mounts,
                                              std::string_view path);

// Returns the mount of a path on this machine. Follows links; a missing path has the mount of its
// nearest existing parent. If mountinfo lists no mount above the path (a chroot whose root is no
// mount point, or no /proc), the type comes from statfs(), the mount point is "/" and the source
// empty. The environment variable FINETUNE_TEST_MOUNT ("<folder>=<type>[:<folder>=<type>...]") adds
// mounts, for tests.
[[nodiscard]] std::optional<Mount> mount_of(const std::string& path);
// The same with the content of a mountinfo file.
[[nodiscard]] std::optional<Mount> mount_of(const std::string& path, std::string_view mountinfo);

// Whether a type is a network's or a FUSE program's: slow, prone to temporary failures, and
// possibly shared with other machines. False for FUSE programs that only pass local folders
// through.
[[nodiscard]] bool is_remote_type(std::string_view type);

// Returns the absolute path without links; a missing part is kept as written.
[[nodiscard]] std::string resolved_path(const std::string& path);

}  // namespace finetune
