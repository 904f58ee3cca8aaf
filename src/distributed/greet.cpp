// SPDX-License-Identifier: MIT
#include "distributed/greet.h"

#include <random>
#include <vector>

#include "finetune/base/error.h"
#include "finetune/base/hash.h"
#include "finetune/base/interrupt.h"
#include "finetune/base/log.h"
#include "finetune/base/text.h"
#include "finetune/distributed/board.h"
#include "finetune/distributed/peer_lost.h"

namespace finetune {
namespace {

using Bytes = std::vector<uint8_t>;

// The result for all ranks, set by the first rank that decides: "met <names>", or "left <rank>".
const std::string kEnd = "greeting/end";
const std::string kMet = "met";
const std::string kLeft = "left ";

const std::string kPhase = "waiting for the other processes";

std::string hello_key(int64_t rank) { return format_text("hello/{}", rank); }

std::string text_of(const Bytes& bytes) { return {bytes.begin(), bytes.end()}; }
Bytes bytes_of(const std::string& text) { return {text.begin(), text.end()}; }

// Returns a name unique to this process, because two may claim the same rank.
std::string make_name() {
  std::random_device random;
  return format_text("{}-{}", random(), random());
}

// Each rank's message: "<proof that it knows the token> <identity> <its name>".
std::string hello(const Membership& membership, int64_t rank, const std::string& identity) {
  return hash_hex(format_text("{}/{}", membership.token, rank)) + " " + identity + " ";
}

std::string name_of(int64_t rank, const std::string& hello) {
  return format_text("{}={}", rank, hello.substr(hello.rfind(' ') + 1));
}

std::string names_of(const std::vector<std::string>& all) {
  std::string names;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    names += " " + name_of(static_cast<int64_t>(rank), all[rank]);
  }
  return names + " ";
}

class Collective {
 public:
  Collective(c10d::Store& store, const Membership& membership, const std::string& identity,
             PeerTimeout& peer_timeout)
      : store_(store),
        membership_(membership),
        identity_(identity),
        peer_timeout_(peer_timeout),
        mine_(hello(membership, membership.rank, identity) + make_name()) {
    for (int64_t rank = 0; rank < membership.size; ++rank) keys_.push_back(hello_key(rank));
  }

  void hold() {
    store_.set(hello_key(membership_.rank), bytes_of(mine_));
    while (!is_ended() && !have_all_come()) {
      if (interrupt::is_requested()) leave();
      check_that_nobody_is_lost();
      check_own_location();
      if (!peer_timeout_.wait([this] { return whom(); })) give_up();
    }
    if (is_ended()) check_who_left(text_of(store_.get(kEnd)));
    const std::vector<std::string> all = hear_all();
    for (size_t rank = 0; rank < all.size(); ++rank) {
      check_hello(static_cast<int64_t>(rank), all[rank]);
    }
    // torchrun assigns the ranks, and its store may still have keys of an earlier attempt.
    if (membership_.has_agent) return;
    const std::string end = end_with(kMet + names_of(all));
    check_who_left(end);
    if (end.find(" " + name_of(membership_.rank, mine_) + " ") == std::string::npos) {
      throw PeerLost(
          format_text("the other processes started without this one: another process also claims "
                      "rank {}, or one is "
                      "about to exit; start the processes again when all have ended",
                      membership_.rank));
    }
  }

 private:
  [[nodiscard]] bool is_ended() { return !membership_.has_agent && store_.check({kEnd}); }

  // Queries only the ranks that were missing the last time.
  [[nodiscard]] bool have_all_come() {
    while (come_ < keys_.size() && store_.check({keys_[come_]})) ++come_;
    return come_ == keys_.size();
  }

  [[nodiscard]] std::vector<int64_t> missing() {
    std::vector<int64_t> ranks;
    for (size_t rank = come_; rank < keys_.size(); ++rank) {
      if (!store_.check({keys_[rank]})) ranks.push_back(static_cast<int64_t>(rank));
    }
    return ranks;
  }

  // Whether this is the lowest rank that has arrived, which reports the missing ones.
  [[nodiscard]] bool is_speaker() {
    for (int64_t rank = 0; rank < membership_.rank; ++rank) {
      if (store_.check({hello_key(rank)})) return false;
    }
    return true;
  }

  [[nodiscard]] std::string whom() {
    const std::vector<int64_t> ranks = missing();
    if (ranks.empty() || !is_speaker()) return "";
    return format_text("{} of {}", names_of_ranks(ranks), membership_.size);
  }

  [[noreturn]] void give_up() {
    const std::vector<int64_t> ranks = missing();
    if (!ranks.empty() && !is_speaker()) throw PeerLost("");
    throw PeerLost(format_text(
        "not all {} processes came within {} s: {}; start them all, or raise ddp_timeout",
        membership_.size, peer_timeout_.seconds(),
        ranks.empty() ? "the last one came just then" : names_of_ranks(ranks) + " did not"));
  }

  // Exits, unless the ranks have already met: then this rank continues with them to the next point
  // at which it may exit.
  void leave() {
    const std::string mine = format_text("{}{}", kLeft, membership_.rank);
    if (!membership_.has_agent && end_with(mine).starts_with(kMet)) return;
    interrupt::throw_if_requested(kPhase);
  }

  // Sets the result to `text`; returns the result, which another rank may have set before.
  std::string end_with(const std::string& text) {
    return text_of(store_.compareSet(kEnd, {}, bytes_of(text)));
  }

  void check_that_nobody_is_lost() const {
    if (membership_.board != nullptr && membership_.board->lost_rank >= 0) throw PeerLost("");
  }

  // If two processes claim this rank, the later one keeps it: after a restart, it is the live one.
  void check_own_location() {
    if (text_of(store_.get(hello_key(membership_.rank))) == mine_) return;
    throw Error(ErrorKind::kConfig, format_text("another process says that it is rank {} of this "
                                                "job too; give each process its own rank",
                                                membership_.rank));
  }

  void check_who_left(const std::string& end) const {
    if (!end.starts_with(kLeft)) return;
    interrupt::throw_if_requested(kPhase);
    const std::string who = end.substr(kLeft.size());
    if (membership_.rank == (who == "0" ? 1 : 0)) {
      log::warning("rank " + who +
                   " was stopped before all processes had come, and the others leave; start them "
                   "again to resume");
    }
    throw PeerLost("");
  }

  // Returns the messages of all ranks, in one request if the store supports it.
  [[nodiscard]] std::vector<std::string> hear_all() {
    std::vector<std::string> all;
    if (store_.hasExtendedApi()) {
      for (const Bytes& bytes : store_.multiGet(keys_)) all.push_back(text_of(bytes));
    } else {
      for (const std::string& key : keys_) all.push_back(text_of(store_.get(key)));
    }
    return all;
  }

  void check_hello(int64_t rank, const std::string& said) const {
    const std::string expected = hello(membership_, rank, identity_);
    if (said.starts_with(expected)) return;
    const size_t token = expected.find(' ');
    if (said.substr(0, token) != expected.substr(0, token)) {
      throw Error(ErrorKind::kConfig,
                  format_text("the process that says it is rank {} does not know this job's token; "
                              "set FINETUNE_JOB_TOKEN to the same value in all processes, or "
                              "MASTER_PORT to another port",
                              rank));
    }
    throw Error(ErrorKind::kConfig,
                format_text("rank {} has another configuration or another version of finetune or "
                            "torch; start all processes with the same ones",
                            rank));
  }

  c10d::Store& store_;
  const Membership& membership_;
  const std::string& identity_;
  PeerTimeout& peer_timeout_;
  const std::string mine_;
  std::vector<std::string> keys_;  // of all ranks, by rank
  size_t come_ = 0;                // number of lowest ranks known to have arrived
};

}  // namespace

void greet(c10d::Store& store, const Membership& membership, const std::string& identity,
           PeerTimeout& peer_timeout) {
  Collective(store, membership, identity, peer_timeout).hold();
}

bool has_greeted(c10d::Store& store, int64_t rank) { return store.check({hello_key(rank)}); }

}  // namespace finetune
