// SPDX-License-Identifier: MIT
#include "distributed/store_heartbeat.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <vector>

namespace finetune::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A store that can be disconnected from one rank.
class CuttableStore final : public c10d::Store {
 public:
  explicit CuttableStore(c10::intrusive_ptr<c10d::Store> store) : store_(std::move(store)) {}

  std::atomic<bool> is_cut{false};     // like a connection closed by the other side
  std::atomic<bool> is_silent{false};  // like a connection to a machine without power

  c10::intrusive_ptr<c10d::Store> clone() override { return store_->clone(); }
  void set(const std::string& key, const std::vector<uint8_t>& value) override {
    use();
    store_->set(key, value);
  }
  std::vector<uint8_t> get(const std::string& key) override {
    use();
    return store_->get(key);
  }
  int64_t add(const std::string& key, int64_t value) override { return store_->add(key, value); }
  bool deleteKey(const std::string& key) override { return store_->deleteKey(key); }
  bool check(const std::vector<std::string>& keys) override {
    use();
    return store_->check(keys);
  }
  int64_t getNumKeys() override { return store_->getNumKeys(); }
  void wait(const std::vector<std::string>& keys) override { store_->wait(keys); }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& time) override {
    store_->wait(keys, time);
  }

 private:
  void use() const {
    while (is_silent) std::this_thread::sleep_for(5ms);
    if (is_cut) throw std::runtime_error("connection reset by peer");
  }

  c10::intrusive_ptr<c10d::Store> store_;
};

class StoreHeartbeats : public ::testing::Test {
 protected:
  void start(int64_t size, StoreHeartbeat::Duration timeout = 60s) {
    members_.resize(static_cast<size_t>(size));
    auto shared = c10::make_intrusive<c10d::HashStore>();
    for (int64_t rank = 0; rank < size; ++rank) StoreHeartbeat::announce(*shared, rank);
    for (int64_t rank = 0; rank < size; ++rank) {
      Member& one = members_[static_cast<size_t>(rank)];
      one.store = c10::make_intrusive<CuttableStore>(shared);
      one.leaves = std::make_unique<std::atomic<int>>(0);
      one.heartbeat = std::make_unique<StoreHeartbeat>(
          one.store, StoreHeartbeat::Options{.rank = rank,
                                             .size = size,
                                             .holds_store = rank == 0,
                                             .beat = 20ms,
                                             .timeout = timeout,
                                             .leave = [leaves = one.leaves.get()] { ++*leaves; }});
    }
  }

  void SetUp() override { ::testing::internal::CaptureStderr(); }
  void TearDown() override {
    if (!members_.empty()) (void)said_until_the_end();
  }

  // Returns the output after all ranks have left.
  std::string said_until_the_end() {
    for (Member& one : members_) one.store->is_silent = false;
    while (!members_.empty()) members_.pop_back();
    return ::testing::internal::GetCapturedStderr();
  }

  struct Member {
    c10::intrusive_ptr<CuttableStore> store = {};
    std::unique_ptr<std::atomic<int>> leaves = {};
    std::unique_ptr<StoreHeartbeat> heartbeat = {};
  };

  // Simulates a killed rank: the others lose their connections to it.
  void kill(size_t rank) { members_[rank].store->is_cut = true; }

  [[nodiscard]] bool leaves_within(size_t rank, StoreHeartbeat::Duration time) const {
    const auto end = std::chrono::steady_clock::now() + time;
    while (std::chrono::steady_clock::now() < end) {
      if (*members_[rank].leaves > 0) return true;
      std::this_thread::sleep_for(5ms);
    }
    return false;
  }

  std::vector<Member> members_;
};

TEST_F(StoreHeartbeats, AreSilentWhereAllLiveAndLeave) {
  start(3, 400ms);
  std::this_thread::sleep_for(600ms);
  for (size_t rank : {1U, 0U, 2U}) members_[rank].heartbeat.reset();
  EXPECT_THAT(said_until_the_end(), IsEmpty());
}

TEST_F(StoreHeartbeats, NameTheRankThatIsGoneOnce) {
  start(3);
  kill(2);
  EXPECT_TRUE(members_[0].heartbeat->is_reported());
  EXPECT_TRUE(members_[1].heartbeat->is_reported());
  const std::string said = said_until_the_end();
  EXPECT_THAT(said, HasSubstr("rank 2 on "));
  EXPECT_THAT(said, HasSubstr("is gone, so the other processes exit too"));
  EXPECT_EQ(said.find("error:"), said.rfind("error:")) << said;
}

TEST_F(StoreHeartbeats, FindAProcessThatHangsAndEndTheOthers) {
  start(3, 300ms);
  members_[2].store->is_silent = true;
  EXPECT_TRUE(leaves_within(0, 10s));
  EXPECT_TRUE(leaves_within(1, 10s));
  const std::string said = said_until_the_end();
  EXPECT_THAT(said, HasSubstr("rank 2 on "));
  EXPECT_THAT(said, HasSubstr("has shown no sign of life"));
  EXPECT_EQ(said.find("error:"), said.rfind("error:")) << said;
}

TEST_F(StoreHeartbeats, NoticeThatTheFirstOneIsGone) {
  start(2);
  kill(1);  // closes its connection to the store, which rank 0 owns
  EXPECT_TRUE(members_[1].heartbeat->is_reported());
  EXPECT_THAT(said_until_the_end(),
              HasSubstr("rank 0, or what the processes met through, is gone"));
}

TEST_F(StoreHeartbeats, NoticeThatTheFirstOneHangs) {
  start(2, 300ms);
  members_[1].store->is_silent = true;  // sends requests but gets no answers
  EXPECT_TRUE(leaves_within(1, 10s));
  EXPECT_THAT(said_until_the_end(), HasSubstr("has shown no sign of life"));
}

TEST_F(StoreHeartbeats, LeaveWhatEndedAnotherToThatOne) {
  start(3);
  members_[1].heartbeat.reset();  // it failed and has reported the error
  EXPECT_TRUE(members_[2].heartbeat->is_reported());
  EXPECT_TRUE(members_[0].heartbeat->is_reported());
  EXPECT_THAT(said_until_the_end(), IsEmpty());
}

TEST_F(StoreHeartbeats, SayThatAConnectionBrokeWhereAllLive) {
  start(2);
  EXPECT_TRUE(members_[1].heartbeat->is_reported());
  EXPECT_THAT(said_until_the_end(), HasSubstr("the connection between two processes broke"));
}

}  // namespace
}  // namespace finetune::testing
