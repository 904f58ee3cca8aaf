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

// This process's rank, and where the ranks meet.
struct Membership {
  int64_t rank = 0;
  int64_t size = 1;
  int64_t local_rank = 0;  // on its machine
  // The rendezvous: a file that all ranks can open, or a port.
  std::string file = {};
  std::string host = {};
  int64_t port = 0;
  bool has_agent = false;      // torchrun's server already listens on the port
  std::string prefix = {};     // of the keys there; distinguishes a restart from earlier attempts
  std::string interface = {};  // network interface; empty: loopback
  std::string token = {};      // secret shared by the processes of this job
  std::string launcher = {};   // "torchrun", "Slurm", ...; empty: this program itself
  Board* board = nullptr;      // shared memory of processes that this program started
  double hang_seconds = 45;    // a rank without heartbeat for this long is treated as hung
};

// Reads the variables of torchrun (RANK, WORLD_SIZE), Slurm's srun (SLURM_PROCID, SLURM_NTASKS) or
// a Kubernetes Indexed Job (JOB_COMPLETION_INDEX, WORLD_SIZE), also for a single process; nullopt
// if no such launcher started this process. `get` reads a variable. Throws Error(kConfig) if a
// variable is missing or invalid.
[[nodiscard]] std::optional<Membership> membership_from_environment(
    const std::function<std::optional<std::string>(const std::string&)>& get);

// Returns the variable by which a launcher made this process a rank other than 0: "SLURM_PROCID=1";
// empty in rank 0 and with one process. Works even if other variables are missing or wrong.
[[nodiscard]] std::string other_rank_in_environment(
    const std::function<std::optional<std::string>(const std::string&)>& get);

// Returns why this build cannot run several processes; empty if it can.
[[nodiscard]] std::string reason_against_several_processes();

// Returns NCCL's version ("2.28.9"); empty if this build has no NCCL, which connects GPUs.
[[nodiscard]] std::string nccl_version();
// Returns why this build has no NCCL; empty if it has.
[[nodiscard]] std::string reason_against_nccl();

// Connects to the other ranks within `timeout_seconds`, and checks, before anything else is
// exchanged, that they know the token and have the same `identity` (program, libraries,
// configuration). Opens ports only on the loopback or the named interface. `timeout_seconds` is
// also the time limit of a sum on connected devices. Throws Error(kConfig), PeerLost, and
// Interrupted if a stop is requested before all ranks have arrived.
[[nodiscard]] std::shared_ptr<World> join_world(const Membership& membership,
                                                const std::string& identity,
                                                int64_t timeout_seconds);

// Tells the other ranks that this one leaves, and keeps the world's connections until the process
// ends: no destructor of the communication libraries runs. The caller must end the process by
// _exit.
void leave_world(std::shared_ptr<World> world);

}  // namespace finetune
