// Detects the sanitizers of a test by their linked run-time libraries.
#pragma once

extern "C" void __asan_init() __attribute__((weak));
extern "C" void __tsan_init() __attribute__((weak));

namespace piton {

// The thread sanitizer ends a forked child that starts threads if the parent has some, and Arrow
// has threads as soon as it is loaded.
inline bool has_thread_sanitizer() { return &__tsan_init != nullptr; }

// With a sanitizer, memory and times of a process mean nothing: freed memory is kept, and every
// access is checked.
inline bool has_sanitizer() { return &__asan_init != nullptr || has_thread_sanitizer(); }

}  // namespace piton
