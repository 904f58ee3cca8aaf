// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace finetune {

class World;
struct Board;

// Which of the processes this one is, and where they meet.
struct Membership {
  int64_t rank = 0;
  int64_t size = 1;
  int64_t local_rank = 0;  // on its machine
  // Where they meet: a file that all of them may open, or a port.
  std::string file = {};
  std::string host = {};
  int64_t port = 0;
  bool has_agent = false;      // torchrun's own server listens there already
  std::string prefix = {};     // of the keys there: a restart must not meet what was before it
  std::string interface = {};  // network interface; empty: the loopback one
  std::string token = {};      // what only processes of this job know
  std::string launcher = {};   // "torchrun", "Slurm", ...; empty: this program itself
  Board* board = nullptr;      // of processes that this program started
  double hang_seconds = 45;    // without heartbeat, after which a process is treated as hung
};

// From what torchrun (RANK, WORLD_SIZE), Slurm's srun (SLURM_PROCID, SLURM_NTASKS) or a Kubernetes
// Indexed Job (JOB_COMPLETION_INDEX, WORLD_SIZE) set in the environment, a single process too;
// nothing where none of them started this one. `get` reads a variable. Throws Error(kConfig) where
// something is missing.
[[nodiscard]] std::optional<Membership> membership_from_environment(
    const std::function<std::optional<std::string>(const std::string&)>& get);

// "SLURM_PROCID=1": the variable by which a launcher made this process another rank than 0; empty
// in rank 0 and with one process. Also if other variables are missing or wrong.
[[nodiscard]] std::string other_rank_in_environment(
    const std::function<std::optional<std::string>(const std::string&)>& get);

// Why this build cannot join several processes; empty: it can.
[[nodiscard]] std::string reason_against_several_processes();

// "2.28.9"; empty where this build has no NCCL, which joins GPUs.
[[nodiscard]] std::string nccl_version();
// Why it has none; empty: it has.
[[nodiscard]] std::string reason_against_nccl();

// Meets the others, for at most `timeout_seconds`, and checks, before anything else is exchanged,
// that they know the token and have the same `identity` (program, libraries, configuration).
// Opens ports on the loopback interface, or on the named one, alone. Where the processes connect
// their devices, `timeout_seconds` is also what a sum there may take. Throws Error(kConfig),
// PeerLost, and Interrupted where a stop is asked for before all have come.
[[nodiscard]] std::shared_ptr<World> join_world(const Membership& membership,
                                                const std::string& identity,
                                                int64_t timeout_seconds);

// Tells the other processes that this one leaves, and keeps the world's connections until the
// process ends: no destructor of the libraries that made them runs. The caller ends the process by
// _exit.
void leave_world(std::shared_ptr<World> world);

}  // namespace finetune
