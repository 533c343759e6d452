// The levels of x86-64 that the processor and the system have, as the psABI of x86-64 names them
// (section 3.1.1). Only in builds for x86-64.
#pragma once

namespace piton {

bool has_x86_64_v2();  // SSE4.2
bool has_x86_64_v3();  // AVX2 and FMA
bool has_x86_64_v4();  // AVX-512 with bytes, words, conflicts and short vectors

}  // namespace piton
