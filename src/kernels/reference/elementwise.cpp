// Copies and sums.
#include "kernels/elementwise.h"

#include <cstring>

#include "kernels/reference/calls.h"
#include "kernels/reference/values.h"

namespace piton::reference {

void execute(const Copy& call) {
  // Bytes as they are where nothing is converted: NaN payloads and 64-bit integers stay exact.
  if (call.src.dtype() == call.dst.dtype() && call.src.contiguous() && call.dst.contiguous()) {
    std::memmove(call.dst.raw(), call.src.raw(), static_cast<std::size_t>(call.src.bytes()));
    return;
  }
  Values::read(call.src).write(call.dst);
}

void execute(const Add& call) {
  const Values a = Values::read(call.a.flatten());
  const Values b = Values::read(call.b.flatten());
  Values y(a.shape());
  for (std::int64_t i = 0; i < call.a.elements(); ++i) y(i) = a(i) + b(i);
  y.write(call.y.flatten());
}

}  // namespace piton::reference
