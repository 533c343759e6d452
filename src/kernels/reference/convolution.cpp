// Causal convolution of each channel, and SiLU of it.
#include "kernels/recurrent/convolution.h"

#include <cmath>

#include "kernels/reference/calls.h"
#include "kernels/reference/recurrent.h"
#include "kernels/reference/values.h"

namespace piton::reference {

std::vector<TextStretch> rows_of_texts(const TextRows& texts, std::int64_t samples,
                                       std::int64_t n) {
  std::vector<TextStretch> all;
  if (!texts.given()) {
    for (std::int64_t i = 0; i < samples; ++i)
      all.push_back({.begin = i * (n / samples), .end = (i + 1) * (n / samples)});
    return all;
  }
  const auto* begins = texts.begins.data<std::int32_t>();
  for (std::int64_t i = 0; i < texts.slots.dim(0); ++i) {
    const std::int64_t rows = begins[i + 1] - begins[i];
    all.push_back({.begin = begins[i],
                   .end = begins[i + 1],
                   .slot = texts.slots.data<std::int32_t>()[i],
                   .continues = texts.lengths.data<std::int32_t>()[i] > rows});
  }
  return all;
}

void execute(const ConvolutionForward& call) {
  const Values x = Values::read(call.x);
  const Values weight = Values::read(call.weight);
  const Values bias = Values::read(call.bias);
  const Values segments = Values::read(call.segments);
  Values state = Values::read(call.state);
  Values y(call.y.shape());
  const std::int64_t width = call.weight.dim(1);
  for (const TextStretch& text : rows_of_texts(call.texts, call.samples, call.x.dim(0))) {
    for (std::int64_t c = 0; c < call.x.dim(1); ++c) {
      // The row at `row`, which may be before the first one.
      const auto before = [&](std::int64_t row) {
        if (row >= text.begin) return x(row, c);
        return text.continues ? state(text.slot, width - 1 - (text.begin - row), c) : 0.0;
      };
      for (std::int64_t t = text.begin; t < text.end; ++t) {
        double z = bias.given() ? bias(c) : 0;
        for (std::int64_t j = 0; j < width; ++j) {
          const std::int64_t row = t - width + 1 + j;
          if (segments.given() && (row < text.begin || segments(row) != segments(t))) continue;
          z += weight(c, j) * before(row);
        }
        y(t, c) = call.silu ? z / (1 + std::exp(-z)) : z;
      }
      if (text.slot < 0) continue;
      std::vector<double> last;
      for (std::int64_t j = 0; j < width - 1; ++j) last.push_back(before(text.end - width + 1 + j));
      for (std::int64_t j = 0; j < width - 1; ++j)
        state(text.slot, j, c) = last[static_cast<std::size_t>(j)];
    }
  }
  y.write(call.y);
  if (call.state.defined()) state.write(call.state);
}

void execute(const ConvolutionBackward& call) {
  const Values x = Values::read(call.x);
  const Values dy = Values::read(call.dy);
  const Values weight = Values::read(call.weight);
  const Values bias = Values::read(call.bias);
  const Values segments = Values::read(call.segments);
  Values dx(call.x.shape());
  Values dweight = Values::read(call.dweight);
  Values dbias = Values::read(call.dbias);
  const std::int64_t width = call.weight.dim(1);
  for (const TextStretch& text : rows_of_texts({}, call.samples, call.x.dim(0))) {
    for (std::int64_t c = 0; c < call.x.dim(1); ++c) {
      for (std::int64_t t = text.begin; t < text.end; ++t) {
        const auto for_each_row = [&](const auto& body) {
          for (std::int64_t j = 0; j < width; ++j) {
            const std::int64_t row = t - width + 1 + j;
            if (row < text.begin || (segments.given() && segments(row) != segments(t))) continue;
            body(j, row);
          }
        };
        double z = bias.given() ? bias(c) : 0;
        for_each_row([&](std::int64_t j, std::int64_t row) { z += weight(c, j) * x(row, c); });
        const double s = 1 / (1 + std::exp(-z));
        const double dz = dy(t, c) * (call.silu ? s * (1 + z * (1 - s)) : 1);
        if (dbias.given()) dbias(c) += dz;
        for_each_row([&](std::int64_t j, std::int64_t row) {
          dx(row, c) += weight(c, j) * dz;
          if (dweight.given()) dweight(c, j) += x(row, c) * dz;
        });
      }
    }
  }
  dx.write(call.dx);
  if (dweight.given()) dweight.write(call.dweight);
  if (dbias.given()) dbias.write(call.dbias);
}

}  // namespace piton::reference
