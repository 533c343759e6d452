// Sleeping on a word of memory that several processes share (futex(2) without the private flag).
#pragma once

#include <atomic>
#include <cstdint>

namespace piton {

using SharedWord = std::atomic<std::uint32_t>;
static_assert(SharedWord::is_always_lock_free && sizeof(SharedWord) == 4);

// Sleeps while `word` equals `expected`, at most `seconds`; may also return early (spurious
// wake-up). Negative seconds: no limit.
void sleep_on(const SharedWord& word, std::uint32_t expected, double seconds);

// Wakes all that sleep on `word`, in every process.
void wake_sleepers(SharedWord& word);

// Others ring it; one owner sleeps on it. Ringing costs a system call only while the owner sleeps.
struct alignas(64) Doorbell {
  SharedWord rings{0};
  SharedWord asleep{0};

  void ring() {
    rings.fetch_add(1, std::memory_order_seq_cst);
    if (asleep.load(std::memory_order_seq_cst) != 0) wake_sleepers(rings);
  }
  std::uint32_t seen() const { return rings.load(std::memory_order_seq_cst); }
  // Returns when rung since `seen`, or after `seconds`. Spins for `spin_us` microseconds before it
  // sleeps.
  void wait(std::uint32_t seen, double seconds, double spin_us);
};

}  // namespace piton
