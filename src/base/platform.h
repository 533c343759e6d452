// The only header with preprocessor conditions: what the compiler and the processor offer.
#pragma once

#if !defined(__x86_64__)
#error \
    "Piton is built for x86-64 (GNU or Clang, little-endian); other processors are not supported yet"
#endif

// Before a function of plain loops: compiled for wider instruction sets too, chosen when it is
// first called. Sanitizers instrument the choice itself, which runs before they are ready.
#if defined(__clang__) || defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
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

}  // namespace piton
