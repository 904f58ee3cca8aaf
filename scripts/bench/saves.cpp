// SPDX-License-Identifier: MIT
// How long training waits for saves: the real writer during an emulated step.
//   saves_benchmark DIR STEPS SAVE_STEPS STEP_MS BACKGROUND(0|1) [DIVISOR]
// Weights and moments of a RoBERTa of 84M parameters (1 GB; DIVISOR makes it narrower); a step
// sleeps, as a host does that waits for its device. Prints one JSON line.
#include <ATen/ops/full.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "finetune/base/clock.h"
#include "finetune/tensor/safetensors.h"
#include "train/save/checkpoint_saver.h"

namespace finetune {
namespace {

struct Measured {
  double stall = 0.0;  // in which the loop did nothing but save
  std::vector<double> stalls, writes, processor;
};

NamedTensors tensors_of(int64_t divisor) {
  const int64_t width = 768 / divisor;
  std::vector<std::vector<int64_t>> shapes = {{52000 / divisor, width}, {514, width}};
  for (int layer = 0; layer < 6; ++layer) {
    for (int i = 0; i < 4; ++i) shapes.insert(shapes.end(), {{width, width}, {width}});
    shapes.insert(shapes.end(), {{4 * width, width}, {4 * width}, {width, 4 * width}});
    for (int i = 0; i < 5; ++i) shapes.push_back({width});
  }
  NamedTensors tensors;
  for (size_t i = 0; i < shapes.size(); ++i) {
    for (const char* kind : {"weight", "exp_avg", "exp_avg_sq"}) {
      tensors.push_back({kind + std::to_string(i), at::full(shapes[i], 0.5, at::kFloat)});
    }
  }
  return tensors;
}

SaveRequest request_of(int64_t step, const NamedTensors& tensors) {
  SaveRequest request{.identity = {.step = step, .run_id = "bench"}};
  request.snapshot = std::make_shared<Snapshot>();
  LazyTensors held;
  for (const NamedTensor& named : tensors) {
    held.push_back(request.snapshot->hold(named.name, named.tensor));
  }
  request.bytes = request.snapshot->bytes();
  request.contents.push_back({.name = "model.safetensors", .write = [held](WritableFile& file) {
                                write_safetensors(file, held);
                              }});
  request.rotation.save_total_limit = 1;
  return request;
}

void collect(CheckpointSaver& saver, Measured& measured) {
  if (const std::optional<SaveOutcome> outcome = saver.take_outcome()) {
    measured.writes.push_back(outcome->seconds);
    measured.processor.push_back(outcome->processor_seconds);
  }
}

std::string list(const std::vector<double>& values) {
  std::string text;
  for (const double value : values) text += (text.empty() ? "" : ", ") + std::to_string(value);
  return "[" + text + "]";
}

int run(char** argv, int64_t divisor) {
  const std::string folder = argv[1];
  const int64_t steps = std::atoll(argv[2]);
  const int64_t save_steps = std::atoll(argv[3]);
  const auto step_microseconds = static_cast<useconds_t>(std::atof(argv[4]) * 1000);
  NamedTensors tensors = tensors_of(divisor);
  Measured measured;
  CheckpointSaver saver(FileSystem::local(),
                        {.output_dir = folder, .in_background = std::atoi(argv[5]) != 0});
  uint64_t bytes = 0;
  for (const NamedTensor& named : tensors) bytes += named.tensor.nbytes() + 64;
  if (std::atoi(argv[5]) != 0) saver.reserve(bytes);
  const double start = now_seconds();
  double waited = 0.0;
  for (int64_t step = 1; step <= steps; ++step) {
    ::usleep(step_microseconds);
    double begin = now_seconds();
    saver.before_update();
    waited += now_seconds() - begin;
    for (NamedTensor& named : tensors) named.tensor.view(-1)[0] = static_cast<float>(step);
    begin = now_seconds();
    collect(saver, measured);
    if (step % save_steps == 0) {
      if (step > save_steps) measured.stalls.push_back(waited);
      measured.stall += waited;
      waited = 0.0;
      saver.wait();
      collect(saver, measured);
      saver.start(request_of(step, tensors));
    }
    waited += now_seconds() - begin;
  }
  const double seconds = now_seconds() - start;
  measured.stall += waited;
  saver.wait();  // no update after the last save, so it never stalled

  collect(saver, measured);
  std::printf(
      "{\"bytes\": %llu, \"steps\": %lld, \"save_steps\": %lld, \"seconds\": %.3f, \"stall\": "
      "%.4f, "
      "\"stalls\": %s, \"writes\": %s, \"processor\": %s}\n",
      static_cast<unsigned long long>(bytes), static_cast<long long>(steps),
      static_cast<long long>(save_steps), seconds, measured.stall, list(measured.stalls).c_str(),
      list(measured.writes).c_str(), list(measured.processor).c_str());
  return 0;
}

}  // namespace
}  // namespace finetune

int main(int argc, char** argv) {
  if (argc < 6) return 2;
  return finetune::run(argv, argc > 6 ? std::atoll(argv[6]) : 1);
}
