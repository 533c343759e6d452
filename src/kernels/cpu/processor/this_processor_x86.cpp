#include <cpuid.h>

#include <cstring>

#include "kernels/cpu/processor/choice.h"

namespace piton::cpu {

Processor this_processor() {
  unsigned eax = 0;
  unsigned words[3] = {};  // in the order of the vendor's letters
  Processor processor;
  if (__get_cpuid(0, &eax, &words[0], &words[2], &words[1]) != 0) {
    char letters[sizeof words];
    std::memcpy(letters, words, sizeof words);
    processor.vendor.assign(letters, sizeof letters);
  }
  unsigned ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0) {
    const int family = static_cast<int>(eax >> 8 & 15);
    processor.family = family == 15 ? family + static_cast<int>(eax >> 20 & 255) : family;
  }
  return processor;
}

}  // namespace piton::cpu
