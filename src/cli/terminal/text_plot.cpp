#include "cli/terminal/text_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace piton::cli {
namespace {

// 0 at the low end of the range .. steps - 1 at the high one.
int step_of(double value, const PlotRange& range, int steps) {
  if (range.size() == 0) return 0;
  return static_cast<int>(std::lround((value - range.low) / range.size() * (steps - 1)));
}

// The mean of the points of each column; NaN where there is none.
std::vector<double> columns_of(const std::vector<PlotPoint>& points, const PlotRange& x,
                               int width) {
  std::vector<double> sums(static_cast<std::size_t>(width), 0);
  std::vector<int> counts(static_cast<std::size_t>(width), 0);
  for (const PlotPoint& point : points) {
    if (!is_finite(point)) continue;
    const auto column = static_cast<std::size_t>(step_of(point.x, x, width));
    sums[column] += point.y;
    ++counts[column];
  }
  for (std::size_t i = 0; i < sums.size(); ++i) {
    sums[i] = counts[i] > 0 ? sums[i] / counts[i] : std::numeric_limits<double>::quiet_NaN();
  }
  return sums;
}

}  // namespace

std::string text_plot(const std::vector<PlotSeries>& series, int width, int height) {
  PlotRange x;
  for (const PlotSeries& one : series) {
    for (const PlotPoint& point : one.points) {
      if (is_finite(point)) x.add(point.x);
    }
  }
  if (x.empty()) return "";
  std::vector<std::vector<double>> columns;
  PlotRange y;
  for (const PlotSeries& one : series) {
    columns.push_back(columns_of(one.points, x, width));
    for (const double value : columns.back()) {
      if (std::isfinite(value)) y.add(value);
    }
  }
  std::vector<std::string> rows(static_cast<std::size_t>(height),
                                std::string(static_cast<std::size_t>(width), ' '));
  for (std::size_t s = 0; s < series.size(); ++s) {
    for (std::size_t column = 0; column < columns[s].size(); ++column) {
      const double value = columns[s][column];
      if (!std::isfinite(value)) continue;
      const int row = height - 1 - step_of(value, y, height);
      rows[static_cast<std::size_t>(row)][column] = series[s].mark;
    }
  }
  std::string text;
  for (int row = 0; row < height; ++row) {
    const bool labeled = row == 0 || row == height - 1 || row == height / 2;
    const double value = y.high - y.size() * row / std::max(height - 1, 1);
    std::string& line = rows[static_cast<std::size_t>(row)];
    line.erase(line.find_last_not_of(' ') + 1);
    text += fmt::format("{:>9} |{}\n", labeled ? fmt::format("{:.3f}", value) : "", line);
  }
  const std::string last = fmt::format("{:g}", x.high);
  text += fmt::format("{:>9} +{:-<{}}\n", "", "", width);
  text += fmt::format("{:>9}  {:<{}}{}\n", "", fmt::format("{:g}", x.low),
                      width - static_cast<int>(last.size()), last);
  std::string legend;
  for (const PlotSeries& one : series) {
    if (one.points.empty()) continue;
    legend += fmt::format("{}{} {}", legend.empty() ? "" : ", ", one.mark, one.name);
  }
  return text + fmt::format("{:>9}  {}\n", "", legend);
}

}  // namespace piton::cli
