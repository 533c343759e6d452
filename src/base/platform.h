// Features of compiler and processor. The only header with preprocessor conditions.
#pragma once

#if !defined(__x86_64__) && !defined(__aarch64__)
#error \
    "Piton is built for x86-64 and 64-bit ARM (GNU or Clang, little-endian); other processors are not supported yet"
#endif

// For a function of plain loops: compiles it for several instruction sets; the loader picks one.
// Not with sanitizers: they instrument the resolver, which runs before their runtime is ready.
#if defined(__aarch64__) || defined(__clang__) || defined(__SANITIZE_ADDRESS__) || \
    defined(__SANITIZE_THREAD__)
#define PITON_VECTOR_CLONES
#else
#define PITON_VECTOR_CLONES \
  __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#endif

namespace piton {

// True in a build with fault injection (`--fault`): every build type but Release.
#ifdef NDEBUG
inline constexpr bool kFaultInjection = false;
#else
inline constexpr bool kFaultInjection = true;
#endif

// pause_spinning() tells the processor that a loop waits for another thread.
#if defined(__aarch64__)
inline constexpr bool kIsArm = true;
inline void pause_spinning() { __asm__ volatile("isb" ::: "memory"); }
#else
inline constexpr bool kIsArm = false;
inline void pause_spinning() { __builtin_ia32_pause(); }
#endif

}  // namespace piton
