// Facts about this binary. The build generates the function body (cmake/build_info.cmake).
#pragma once

#include <string_view>

namespace piton::cli {

struct BuildInfo {
  std::string_view version;    // "0.1.0"
  std::string_view commit;     // "1a2b3c4d5e6f", ", modified" after it if files differed; "unknown"
  std::string_view back_ends;  // "reference, cpu, meta, mpi"
  std::string_view build;      // "Release, GNU 12.2.0"
};

BuildInfo build_info();

}  // namespace piton::cli
