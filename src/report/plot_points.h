// Points of a curve and their ranges, for pictures of any kind.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

namespace piton {

struct PlotPoint {
  double x = 0;
  double y = 0;
};

// A point with an infinity or NaN is not drawn.
inline bool is_finite(const PlotPoint& point) {
  return std::isfinite(point.x) && std::isfinite(point.y);
}

// The smallest range that holds what was added.
struct PlotRange {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();

  void add(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  bool empty() const { return low > high; }
  double size() const { return high - low; }
};

}  // namespace piton
