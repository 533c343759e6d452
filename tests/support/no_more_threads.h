// For tests of what happens where the system has no thread left.
#pragma once

#include <gtest/gtest.h>
#include <pthread.h>

#include <cstddef>

namespace piton::test {

// During its life every new thread is refused (EAGAIN), as by a limit on processes, which does not
// hold for root: each asks for a stack larger than the address space.
class NoMoreThreads {
 public:
  NoMoreThreads() {
    EXPECT_EQ(::pthread_getattr_default_np(&before_), 0);
    pthread_attr_t huge;
    ::pthread_attr_init(&huge);
    EXPECT_EQ(::pthread_attr_setstacksize(&huge, std::size_t{1} << 48), 0);
    EXPECT_EQ(::pthread_setattr_default_np(&huge), 0);
    ::pthread_attr_destroy(&huge);
  }
  ~NoMoreThreads() {
    ::pthread_setattr_default_np(&before_);
    ::pthread_attr_destroy(&before_);
  }
  NoMoreThreads(const NoMoreThreads&) = delete;
  NoMoreThreads& operator=(const NoMoreThreads&) = delete;

 private:
  pthread_attr_t before_;
};

}  // namespace piton::test
