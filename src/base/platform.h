// The only header with preprocessor conditions: what the compiler and the processor offer.
#pragma once

#if !defined(__x86_64__)
#error \
    "Piton is built for x86-64 (GNU or Clang, little-endian); other processors are not supported yet"
#endif

namespace piton {

// True in a build with fault injection (`--fault`): every build type but Release.
#ifdef NDEBUG
inline constexpr bool kFaultInjection = false;
#else
inline constexpr bool kFaultInjection = true;
#endif

}  // namespace piton
