// SPDX-License-Identifier: MIT
#include <charconv>
#include <utility>

#include "finetune/base/error.h"
#include "finetune/base/log.h"
#include "finetune/base/text.h"
#include "finetune/distributed/membership.h"

namespace finetune {
namespace {

using Get = std::function<std::optional<std::string>(const std::string&)>;

constexpr int64_t kFirstPort = 20000;  // of the ports chosen by a job's number
constexpr int64_t kPorts = 10000;

int64_t parse(const std::string& name, const std::string& text) {
  int64_t value = -1;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  if (result.ec != std::errc() || result.ptr != text.data() + text.size() || value < 0) {
    throw Error(ErrorKind::kConfig, "the environment's " + name + " is '" + text +
                                        "', not a whole number; start the processes with torchrun, "
                                        "srun or num_processes");
  }
  return value;
}

std::optional<int64_t> number(const Get& get, const std::string& name) {
  const std::optional<std::string> text = get(name);
  if (!text) return std::nullopt;
  return parse(name, *text);
}

int64_t needed_number(const Get& get, const std::string& name, const std::string& launcher) {
  const std::optional<int64_t> value = number(get, name);
  if (!value) {
    throw Error(ErrorKind::kConfig,
                launcher + " started this process, but " + name +
                    " is not in the environment: set it to the same value in all processes");
  }
  return *value;
}

// Sets the rendezvous address. Several machines need a given address and a named interface, because
// listening on all interfaces would be open to everyone.
void take_address(const Get& get, bool one_machine, std::optional<int64_t> job, Membership& one) {
  if (one.size == 1) return;  // a single rank connects to no other
  const std::string host = get("MASTER_ADDR").value_or("");
  if (host.empty() && !one_machine) {
    throw Error(ErrorKind::kConfig,
                "several machines need MASTER_ADDR, the address of the one with rank 0, in the "
                "environment of all processes");
  }
  one.host = host.empty() || one_machine ? "127.0.0.1" : host;
  if (one.has_agent) one.host = host;
  const std::optional<int64_t> port = number(get, "MASTER_PORT");
  one.port = port ? *port : kFirstPort + job.value_or(0) % kPorts;
  if (one.port < 1 || one.port > 65535) {
    throw Error(ErrorKind::kConfig,
                format_text("MASTER_PORT is {}, not a port from 1 to 65535", one.port));
  }
  // A loopback address is of this machine, whatever a launcher says of others.
  if (one_machine || host == "127.0.0.1" || host == "localhost" || host == "::1") return;
  one.interface = get("GLOO_SOCKET_IFNAME").value_or("");
  if (one.interface.empty()) {
    throw Error(ErrorKind::kConfig,
                "several machines talk over a network interface that is named: set "
                "GLOO_SOCKET_IFNAME (for example to eth0) in the environment of all processes");
  }
}

Membership from_torchrun(const Get& get) {
  Membership one{.launcher = "torchrun"};
  one.rank = needed_number(get, "RANK", one.launcher);
  one.size = needed_number(get, "WORLD_SIZE", one.launcher);
  one.local_rank = number(get, "LOCAL_RANK").value_or(one.rank);
  one.has_agent = get("TORCHELASTIC_USE_AGENT_STORE") == "True";
  one.prefix = get("TORCHELASTIC_RUN_ID").value_or("") + "/" +
               get("TORCHELASTIC_RESTART_COUNT").value_or("0");
  const bool one_machine = number(get, "LOCAL_WORLD_SIZE").value_or(0) == one.size;
  take_address(get, one_machine, std::nullopt, one);
  return one;
}

Membership from_slurm(const Get& get) {
  Membership one{.launcher = "Slurm"};
  one.rank = needed_number(get, "SLURM_PROCID", one.launcher);
  const std::optional<int64_t> of_step = number(get, "SLURM_STEP_NUM_TASKS");
  one.size = of_step ? *of_step : needed_number(get, "SLURM_NTASKS", one.launcher);
  one.local_rank = number(get, "SLURM_LOCALID").value_or(one.rank);
  const std::optional<int64_t> nodes = number(get, "SLURM_STEP_NUM_NODES");
  const bool one_machine = nodes ? *nodes == 1 : number(get, "SLURM_NNODES").value_or(1) == 1;
  one.prefix = get("SLURM_JOB_ID").value_or("") + "." + get("SLURM_STEP_ID").value_or("");
  take_address(get, one_machine, number(get, "SLURM_JOB_ID"), one);
  return one;
}

Membership from_indexed_job(const Get& get) {
  Membership one{.launcher = "an Indexed Job"};
  one.rank = needed_number(get, "JOB_COMPLETION_INDEX", one.launcher);
  one.size = needed_number(get, "WORLD_SIZE", one.launcher);
  take_address(get, /*one_machine=*/false, std::nullopt, one);
  return one;
}

// Rejects an environment with only one of torchrun's variables and no other launcher's: each
// process would train alone and write the same files.
void refuse_half(const Get& get) {
  for (const auto& [there, missing] :
       {std::pair{"RANK", "WORLD_SIZE"}, std::pair{"WORLD_SIZE", "RANK"}}) {
    if (!get(there) || get(missing)) continue;
    throw Error(ErrorKind::kConfig, "the environment has " + std::string(there) + " but not " +
                                        missing + ": set both, as torchrun does, or none of them");
  }
}

}  // namespace

std::optional<Membership> membership_from_environment(const Get& get) {
  std::optional<Membership> one;
  if (get("RANK") && get("WORLD_SIZE")) {
    one = from_torchrun(get);
  } else if (get("SLURM_PROCID") && get("SLURM_STEP_ID")) {
    // Without a step this is the batch job's script itself, not started by srun.
    one = from_slurm(get);
  } else if (get("JOB_COMPLETION_INDEX") && get("WORLD_SIZE")) {
    one = from_indexed_job(get);
  } else {
    refuse_half(get);
    if (get("JOB_COMPLETION_INDEX")) {
      log::warning(
          "this is one process of an Indexed Job, and it trains alone: WORLD_SIZE is not set, "
          "which "
          "is the number of completions where they are to train together");
    }
  }
  if (!one) return std::nullopt;
  if (one->rank >= one->size) {
    throw Error(ErrorKind::kConfig, format_text("{} says that this is rank {} of {} processes",
                                                one->launcher, one->rank, one->size));
  }
  one->token = get("FINETUNE_JOB_TOKEN").value_or("");
  return one;
}

std::string other_rank_in_environment(const Get& get) {
  std::string name;
  std::optional<std::string> size = get("WORLD_SIZE");
  if (get("RANK") && size) {
    name = "RANK";
  } else if (get("SLURM_PROCID") && get("SLURM_STEP_ID")) {
    name = "SLURM_PROCID";
    size = get("SLURM_STEP_NUM_TASKS");
    if (!size) size = get("SLURM_NTASKS");
  } else if (get("JOB_COMPLETION_INDEX") && size) {
    name = "JOB_COMPLETION_INDEX";
  } else {
    return "";
  }
  const std::string rank = get(name).value_or("");
  return rank == "0" || size == "1" ? "" : name + "=" + rank;
}

}  // namespace finetune
