// Layer norm and RMS norm, row by row.
#include "kernels/norm.h"

#include <cmath>

#include "kernels/reference/calls.h"
#include "kernels/reference/values.h"

namespace piton::reference {

void execute(const NormForward& call) {
  const Values x = Values::read(call.x);
  const Values gain = Values::read(call.gain);
  const Values bias = Values::read(call.bias);
  const bool layer = call.mean.defined();
  const std::int64_t n = call.x.dim(0);
  const std::int64_t h = call.x.dim(1);
  const Values whole = Values::read(call.squares);
  const auto width = static_cast<double>(whole.given() ? call.width : h);
  Values y(call.y.shape());
  Values mean(Shape{n});
  Values rstd(Shape{n});
  for (std::int64_t row = 0; row < n; ++row) {
    if (layer) {
      double sum = 0;
      for (std::int64_t i = 0; i < h; ++i) sum += x(row, i);
      mean(row) = sum / static_cast<double>(h);
    }
    double squares = 0;
    for (std::int64_t i = 0; i < h; ++i) {
      squares += (x(row, i) - mean(row)) * (x(row, i) - mean(row));
    }
    if (whole.given()) squares = whole(row);
    rstd(row) = 1 / std::sqrt(squares / width + call.eps);
    for (std::int64_t i = 0; i < h; ++i) {
      y(row, i) = (x(row, i) - mean(row)) * rstd(row) * (gain(i) + call.gain_offset) +
                  (bias.given() ? bias(i) : 0);
    }
  }
  y.write(call.y);
  if (layer) mean.write(call.mean);
  rstd.write(call.rstd);
}

// With g = dy * gain and the normalized input n = (x - mean) r:
//   layer  dx = r (g - mean(g) - n mean(g n)),   RMS  dx = r (g - n mean(g n))
void execute(const NormBackward& call) {
  const Values dy = Values::read(call.dy);
  const Values dresidual = Values::read(call.dresidual);
  const Values x = Values::read(call.x);
  const Values gain = Values::read(call.gain);
  const Values mean = Values::read(call.mean);
  const Values rstd = Values::read(call.rstd);
  const std::int64_t n = call.x.dim(0);
  const std::int64_t h = call.x.dim(1);
  const Values products = Values::read(call.products);
  Values dx(call.dx.shape());
  Values dgain_sum(Shape{h});
  Values dbias_sum(Shape{h});
  for (std::int64_t row = 0; row < n; ++row) {
    const double center = mean.given() ? mean(row) : 0;
    double sum_g = 0;
    double sum_gn = 0;
    for (std::int64_t i = 0; i < h; ++i) {
      const double normalized = (x(row, i) - center) * rstd(row);
      const double factor = gain(i) + call.gain_offset;
      sum_g += dy(row, i) * factor;
      sum_gn += dy(row, i) * factor * normalized;
      dgain_sum(i) += dy(row, i) * normalized;
      dbias_sum(i) += dy(row, i);
    }
    const double mean_g = mean.given() ? sum_g / static_cast<double>(h) : 0;
    const double mean_gn = products.given() ? products(row) / static_cast<double>(call.width)
                                            : sum_gn / static_cast<double>(h);
    for (std::int64_t i = 0; i < h; ++i) {
      const double normalized = (x(row, i) - center) * rstd(row);
      dx(row, i) =
          rstd(row) * (dy(row, i) * (gain(i) + call.gain_offset) - mean_g - normalized * mean_gn) +
          (dresidual.given() ? dresidual(row, i) : 0);
    }
  }
  dx.write(call.dx);
  const auto add_to = [&](const Tensor& tensor, const Values& sum) {
    if (!tensor.defined()) return;
    Values total = Values::read(tensor);
    for (std::int64_t i = 0; i < h; ++i) total(i) += sum(i);
    total.write(tensor);
  };
  add_to(call.dgain, dgain_sum);
  add_to(call.dbias, dbias_sum);
}

void execute(const NormProducts& call) {
  const Values dy = Values::read(call.dy);
  const Values x = Values::read(call.x);
  const Values gain = Values::read(call.gain);
  const Values rstd = Values::read(call.rstd);
  Values products(call.products.shape());
  for (std::int64_t row = 0; row < call.x.dim(0); ++row) {
    for (std::int64_t i = 0; i < call.x.dim(1); ++i)
      products(row) += dy(row, i) * (gain(i) + call.gain_offset) * x(row, i) * rstd(row);
  }
  products.write(call.products);
}

}  // namespace piton::reference
