#include "comm/ranks/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <climits>
#include <cmath>
#include <ctime>

#include "base/platform.h"

namespace piton {

void sleep_on(const SharedWord& word, std::uint32_t expected, double seconds) {
  timespec limit{};
  if (seconds >= 0) {
    limit.tv_sec = static_cast<time_t>(seconds);
    limit.tv_nsec = static_cast<long>((seconds - std::floor(seconds)) * 1e9);
  }
  // The caller checks the word again in any case, so EAGAIN, EINTR and ETIMEDOUT need no
  // distinction.
  syscall(SYS_futex, &word, FUTEX_WAIT, expected, seconds >= 0 ? &limit : nullptr, nullptr, 0);
}

void wake_sleepers(SharedWord& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void Doorbell::wait(std::uint32_t seen, double seconds, double spin_us) {
  if (spin_us > 0) {
    const auto end = std::chrono::steady_clock::now() +
                     std::chrono::nanoseconds(static_cast<std::int64_t>(spin_us * 1e3));
    do {
      for (int i = 0; i < 8; ++i) {
        if (this->seen() != seen) return;
        pause_spinning();
      }
    } while (std::chrono::steady_clock::now() < end);
  }
  asleep.store(1, std::memory_order_seq_cst);
  if (this->seen() == seen) sleep_on(rings, seen, seconds);
  asleep.store(0, std::memory_order_seq_cst);
}

}  // namespace piton
