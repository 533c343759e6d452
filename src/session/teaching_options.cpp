#include "session/teaching_options.h"

#include <cmath>

#include "base/error.h"

namespace piton {

void TeachingOptions::check() const {
  const TeachingOptions none;
  if (!given()) {
    if (temperature != none.temperature || weight != none.weight) {
      throw Error(Fault::kUsage, "--{}: needs --teacher-model DIR, which is not given",
                  weight != none.weight ? "distillation-weight" : "distillation-temperature");
    }
    return;
  }
  if (!(temperature >= 0.01 && temperature <= 1000)) {
    throw Error(Fault::kUsage, "--distillation-temperature: got {}, wanted 0.01 to 1000",
                temperature);
  }
  if (!(weight > 0 && weight <= 1)) {
    throw Error(Fault::kUsage, "--distillation-weight: got {}, wanted more than 0 and at most 1",
                weight);
  }
}

}  // namespace piton
