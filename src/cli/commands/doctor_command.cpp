// SPDX-License-Identifier: MIT
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "cli/process/command_line.h"
#include "cli/process/commands.h"
#include "finetune/base/child_process.h"
#include "finetune/base/clock.h"
#include "finetune/base/error.h"
#include "finetune/base/file_system.h"
#include "finetune/base/text.h"
#include "finetune/base/version.h"
#include "finetune/checkpoint/bucket.h"
#include "finetune/data/arrow_support.h"
#include "finetune/distributed/membership.h"
#include "finetune/tensor/device.h"
#include "finetune/tensor/gpu.h"
#include "finetune/tensor/torch_build.h"
#include "finetune/tensor/tpu.h"

namespace finetune::cli {
namespace {

using Json = nlohmann::ordered_json;

// Prints each fact and problem when it is found, or with --json all at the end.
class Doctor {
 public:
  explicit Doctor(bool as_json) : as_json_(as_json) {}

  void line(const std::string& what, const std::string& value) {
    Json& fact = facts_[what];  // of two libraries with one name, a list
    if (fact.is_null()) {
      fact = value;
    } else {
      if (!fact.is_array()) fact = Json::array({fact});
      fact.push_back(value);
    }
    if (as_json_) return;
    std::cout << what << std::string(what.size() < 18 ? 18 - what.size() : 1, ' ') << value << "\n";
  }

  void problem(const std::string& what, const std::string& repair) {
    problems_.push_back({{"problem", what}, {"repair", repair}});
    if (!as_json_) std::cout << "problem: " << what << "; " << repair << "\n";
  }

  // Returns whether there was no problem.
  bool finish() {
    const bool is_well = problems_.empty();
    if (as_json_) {
      std::cout << dump_json({{"facts", facts_}, {"problems", problems_}}) << "\n";
    } else if (is_well) {
      std::cout << "all is well\n";
    }
    return is_well;
  }

 private:
  // Paths may hold bytes that are not UTF-8.
  static std::string dump_json(const Json& json) {
    return json.dump(2, ' ', false, Json::error_handler_t::replace);
  }

  bool as_json_;
  Json facts_ = Json::object();
  Json problems_ = Json::array();
};

std::string gigabytes(uint64_t bytes) {
  return format_number("%.1f GiB", static_cast<double>(bytes) / (1 << 30));
}

// Returns a field of /proc/meminfo such as "MemTotal:  24 kB" in bytes.
uint64_t memory_field(const std::string& name) {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(name + ":")) return std::stoull(line.substr(name.size() + 1)) * 1024;
  }
  return 0;
}

// Returns the loaded shared libraries whose names contain `part`.
std::set<std::string> loaded_libraries(const std::string& part) {
  std::set<std::string> paths;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    const size_t slash = line.find('/');
    if (slash != std::string::npos &&
        file_name(line.substr(slash)).find(part) != std::string::npos) {
      paths.insert(line.substr(slash));
    }
  }
  return paths;
}

void look_at_libraries(Doctor& doctor) {
  doctor.line("finetune", std::string(kVersion) + ", built for torch " + torch_built_for());
  doctor.line("libtorch", torch_version() + " in " + torch_library_folder());
  if (!torch_version().starts_with(torch_built_for() + ".")) {
    doctor.problem("this finetune was built for another version of torch",
                   "install torch " + torch_built_for() + ", or the wheel for this torch");
  }
  const auto openmp = loaded_libraries("libgomp");
  for (const std::string& path : openmp) doctor.line("OpenMP", path);
  if (openmp.size() > 1) {
    doctor.problem("two OpenMP libraries are loaded, which slows torch down",
                   "build again with scripts/build and start without LD_PRELOAD");
  }
}

std::string how_processes_meet(bool cuda_build) {
  const std::string no_gloo = reason_against_several_processes();
  if (!no_gloo.empty()) return "one: " + no_gloo;
  if (!cuda_build) return "Gloo";
  if (!reason_against_nccl().empty()) return "Gloo, also between GPUs: " + reason_against_nccl();
  return "Gloo, between GPUs NCCL " + nccl_version();
}

void look_at_helpers(Doctor& doctor) {
  const std::string arrow = describe_arrow_support();
  doctor.line("Parquet, Arrow",
              arrow.empty()
                  ? "no pyarrow: these files cannot be read (python3 -m pip install pyarrow, in a "
                    "virtual environment where the system's pip refuses)"
                  : arrow);
  const std::string hf = find_program("hf");
  doctor.line("hf", hf.empty() ? "not installed: models are taken from folders and the local "
                                 "Hugging Face cache (pip install huggingface_hub)"
                               : hf);
}

void look_at_device(Doctor& doctor) {
  if (has_tpu()) {
    doctor.line("TPU", tpu_summary());
    if (const std::string problem = tpu_problem(tpu_packages()); !problem.empty()) {
      return doctor.problem(problem, "or train with accelerator: cpu");
    }
  }
  const c10::Device device = pick_device(Accelerator::kAuto);
  doctor.line("device", describe_device(device));
  const bool cuda_build = !loaded_libraries("libtorch_cuda").empty();
  if (device.is_cpu() && cuda_build && !has_nvidia_hardware()) {
    doctor.line("accelerator",
                "none: this torch can use CUDA, but this machine has no NVIDIA GPU or driver; "
                "training uses the CPU");
  } else if (device.is_cpu() && cuda_build) {
    const std::string driver = nvidia_driver_version();
    doctor.problem("this torch can use CUDA, but no device is seen" +
                       (driver.empty() ? "" : " (driver " + driver + ")"),
                   "check the driver (nvidia-smi), which must be at least as new as torch's CUDA, "
                   "and CUDA_VISIBLE_DEVICES, or train with use_cpu");
  } else if (device.is_cpu()) {
    doctor.line("accelerator", "none: this torch is a CPU build");
  }
  if (const std::string note = tpu_note(); !note.empty()) doctor.line("TPU", note);
  doctor.line("processes", how_processes_meet(cuda_build));
  doctor.line("processors", std::to_string(std::thread::hardware_concurrency()));
}

void look_at_memory(Doctor& doctor) {
  const uint64_t available = memory_field("MemAvailable");
  doctor.line("memory",
              gigabytes(memory_field("MemTotal")) + ", " + gigabytes(available) + " available");
  if (available < (uint64_t{1} << 30)) {
    doctor.problem("less than 1 GiB of memory is available", "end other programs");
  }
}

void look_at_disk(Doctor& doctor) {
  FileSystem& files = FileSystem::local();
  char buffer[4096];
  const std::string here = ::getcwd(buffer, sizeof(buffer)) != nullptr ? buffer : ".";
  const uint64_t free = files.free_bytes(here);
  doctor.line("disk", gigabytes(free) + " free in " + here);
  if (free < (uint64_t{2} << 30)) {
    doctor.problem("less than 2 GiB are free here",
                   "an 84M model's checkpoint takes 1 GB: free some");
  }
  try {
    const std::string probe = join_path(here, format_text(".finetune-doctor-{}", ::getpid()));
    files.write_atomically(probe, "probe");
    files.remove_file(probe);
  } catch (const Error& error) {
    doctor.problem(error.what(), "set output_dir to a place that you may write to");
  }
  if (files.exists("/content")) {
    doctor.line("Google Drive", files.exists("/content/drive/MyDrive")
                                    ? "mounted at /content/drive"
                                    : "not mounted (from google.colab import drive; "
                                      "drive.mount('/content/drive'))");
  }
}

// Writes, reads, lists and deletes an object.
void look_at_bucket(Doctor& doctor, const std::string& location) {
  constexpr size_t kProbeBytes = size_t{8} << 20;
  const std::string folder = join_path(location, format_text(".finetune-doctor-{}", ::getpid()));
  const std::string path = join_path(folder, "probe");
  const auto seconds = [](const auto& action) {
    const double begin = Clock::steady().now();
    action();
    return Clock::steady().now() - begin;
  };
  const auto speed = [](double time) {
    return format_number("%.1f MB/s", static_cast<double>(kProbeBytes) / 1e6 / time);
  };
  try {
    const std::shared_ptr<FileSystem> files = checkpoint::bucket_files(location);
    (void)files->type(folder);  // starts rclone
    const double latency = seconds([&] { (void)files->type(folder); });
    std::string probe(kProbeBytes, '\0');
    for (size_t i = 0; i < probe.size(); ++i) probe[i] = static_cast<char>(i * 2654435761U >> 24);
    const double writing = seconds([&] {
      const auto file = files->create(path);
      file->write(probe);
      file->close();
    });
    bool is_same = false;
    const double reading = seconds([&] { is_same = files->read_all(path) == probe; });
    const bool is_listed = files->list(folder) == std::vector<std::string>{"probe"};
    files->remove_tree(folder);
    doctor.line("bucket", location + ": " + format_number("%.0f ms", 1000 * latency) +
                              " for a request, writes " + speed(writing) + ", reads " +
                              speed(reading));
    if (!is_same || !is_listed || files->exists(folder)) {
      doctor.problem(
          "what was written to '" + location + "' was not read, listed or deleted as it is",
          "do not rely on this store");
    }
  } catch (const Error& error) {
    doctor.problem(error.what(), "check the bucket's name, the credentials and their rights");
  }
}

constexpr const char* kDoctorHelp =
    R"(usage: finetune doctor [BUCKET] [--json]

Prints devices, memory, libraries, pyarrow, hf, disk and problems. Exit code 1 if there is a problem.

  BUCKET   a place for mirror_dir (s3://BUCKET/FOLDER, rclone:REMOTE:FOLDER): also writes,
           reads, lists and deletes an object of 8 MiB there, and prints the speed
  --json   print one JSON object: "facts" by name, and a list of "problems"
)";

}  // namespace

int doctor_command(const Arguments& arguments) {
  CommandLine line("doctor", kDoctorHelp);
  bool as_json = false;
  line.flag("--json", as_json);
  if (!line.parse(arguments)) return kExitFinished;
  const std::vector<std::string>& locations = line.rest();
  if (locations.size() > 1 || (!locations.empty() && !checkpoint::is_bucket(locations.front()))) {
    throw Error(ErrorKind::kUsage, "finetune doctor takes at most one bucket (s3://BUCKET/FOLDER)");
  }
  Doctor doctor(as_json);
  look_at_libraries(doctor);
  look_at_helpers(doctor);
  look_at_device(doctor);
  look_at_memory(doctor);
  look_at_disk(doctor);
  if (!locations.empty()) look_at_bucket(doctor, locations.front());
  return doctor.finish() ? kExitFinished : kExitFailed;
}

}  // namespace finetune::cli
