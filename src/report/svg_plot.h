// Curves as an SVG picture inside of a page: without scripts, fonts or external pictures.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "report/plot_points.h"

namespace piton {

struct Curve {
  std::string label;  // for a pointer that rests on it
  int color = 0;      // of --c0 to --c7, which the page defines
  bool faint = false;
  bool dots = false;              // a dot at each point: few, as of validation
  std::vector<double> marks;      // upright lines at these x, within the points of all curves
  std::vector<PlotPoint> points;  // x ascends; points that are not finite part the curve
};

// `title` and axes may be any text: it is escaped. If a curve has more points than columns, draws
// the mean of each column in a band from its lowest to its highest value. "" if no point is finite.
std::string svg_plot(std::string_view title, const std::vector<Curve>& curves);

// 1234567 -> "1.23M", 0.00015 -> "1.5e-04", 42 -> "42".
std::string short_number(double value);

// About `most` round numbers from `low` to `high`, ascending: multiples of 1, 2 or 5 times a power
// of ten.
std::vector<double> round_ticks(double low, double high, int most);

}  // namespace piton
