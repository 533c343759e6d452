// Which sanitizer a test runs under: their run-time libraries are linked in or they are not.
#pragma once

extern "C" void __asan_init() __attribute__((weak));
extern "C" void __tsan_init() __attribute__((weak));

namespace piton {

// It ends a forked child that starts threads where the parent has some; Arrow has them from the
// moment that it is loaded.
inline bool has_thread_sanitizer() { return &__tsan_init != nullptr; }

// Sizes and times of a process then say nothing about the program: freed memory is kept, every
// access is checked.
inline bool has_sanitizer() { return &__asan_init != nullptr || has_thread_sanitizer(); }

}  // namespace piton
