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
  std::string source;  // what is mounted, as its file system calls it
};

// The lines of /proc/self/mountinfo; those that are none are left out.
[[nodiscard]] std::vector<Mount> parse_mounts(std::string_view mountinfo);

// The mount of an absolute path without links: the longest mount point above it, and the last of
// several at one point. nullopt if there is none.
[[nodiscard]] std::optional<Mount> find_mount(const std::vector<Mount>& mounts,
                                              std::string_view path);

// The mount of a path on this machine. Follows links; a missing path has the mount of its nearest
// existing parent. Where mountinfo lists no mount above the path (a chroot whose root is no mount
// point, or no /proc), the type is what statfs() reports, the mount point "/" and the source empty.
// The environment variable FINETUNE_TEST_MOUNT ("<folder>=<type>[:<folder>=<type>...]") adds
// mounts, for tests.
[[nodiscard]] std::optional<Mount> mount_of(const std::string& path);
// The same with the content of a mountinfo file.
[[nodiscard]] std::optional<Mount> mount_of(const std::string& path, std::string_view mountinfo);

// Whether a type is a network's or a FUSE program's: slow, apt to fail for a while, and possibly
// seen by other machines too. Programs that only pass local folders on are not.
[[nodiscard]] bool is_remote_type(std::string_view type);

// The absolute path without links; what is missing is kept as it is written.
[[nodiscard]] std::string resolved_path(const std::string& path);

}  // namespace finetune
