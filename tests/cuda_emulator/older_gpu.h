// Which GPU the emulator is.
#pragma once

namespace piton::emulator {

// While it lives, the emulated GPU has compute capability 8.0: kernels made then do not use what
// only 9.0 has, which the emulator has otherwise.
class OlderGpu {
 public:
  OlderGpu();
  ~OlderGpu();
  OlderGpu(const OlderGpu&) = delete;
  OlderGpu& operator=(const OlderGpu&) = delete;
};

}  // namespace piton::emulator
