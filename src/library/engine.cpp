// The C interface: version and engine.
#include "base/options/option_range.h"
#include "library/handles.h"

using namespace piton;           // NOLINT(google-build-using-namespace)
using namespace piton::library;  // NOLINT(google-build-using-namespace)

const char* piton_version(void) { return PITON_VERSION; }

int piton_engine_open(int threads, const char* kernels, piton_log_function log, void* user,
                      piton_engine** result, piton_error* error) {
  return guarded(error, [&] {
    require(result, "result");
    *result = nullptr;
    EngineOptions options{.threads = threads};
    if (kernels != nullptr) options.kernels = kernels;
    check_range("threads", threads, 0, 8192);  // the limit of --threads
    *result = new piton_engine{std::make_shared<OpenedEngine>(options, log, user)};
  });
}

void piton_engine_close(piton_engine* engine) { delete engine; }
