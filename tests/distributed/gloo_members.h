// SPDX-License-Identifier: MIT
#pragma once

#include <gtest/gtest.h>

#include <csignal>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/temporary_folder.h"
#include "finetune/base/error.h"
#include "finetune/distributed/membership.h"
#include "finetune/distributed/peer_lost.h"
#include "finetune/distributed/world.h"
#include "finetune/tensor/device.h"

namespace finetune::testing {

// Runs the ranks of a world in threads, over Gloo.
class GlooMembers : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string reason = reason_against_several_processes();
    if (!reason.empty()) GTEST_SKIP() << reason;
    // As the program's main(): Gloo may write to a rank that is gone.
    ::signal(SIGPIPE, SIG_IGN);
    choose_vector_math();
  }

  // Returns what each rank's thread threw; empty if nothing.
  std::vector<std::string> run(int64_t size, const std::function<void(World&)>& work,
                               const std::function<void(Membership&)>& change = {},
                               const std::vector<std::string>& identities = {}) {
    // A store's file remains until the process ends, so each world has its own.
    const std::string collective = folder_ / ("world-" + std::to_string(worlds_++));
    std::vector<std::string> ends(static_cast<size_t>(size));
    std::vector<std::thread> threads;
    for (int64_t rank = 0; rank < size; ++rank) {
      threads.emplace_back([&, rank] {
        std::string& end = ends[static_cast<size_t>(rank)];
        Membership one{.rank = rank, .size = size, .file = collective, .token = "secret"};
        if (change) change(one);
        try {
          const auto world = join_world(
              one, identities.empty() ? "same" : identities[static_cast<size_t>(rank)], 2);
          work(*world);
        } catch (const Error& error) {
          end = error.what();
        } catch (const PeerLost& lost) {
          end = std::string("lost: ") + lost.what();
        } catch (const Interrupted& stop) {
          end = std::string("stopped: ") + stop.what();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    return ends;
  }

  TemporaryFolder folder_;
  int worlds_ = 0;
};

}  // namespace finetune::testing
