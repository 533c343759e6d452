// Numbers as a picture of characters, for a terminal.
#pragma once

#include <string>
#include <vector>

#include "report/plot_points.h"

namespace piton::cli {

struct PlotSeries {
  char mark = '*';
  std::string name;               // for the legend
  std::vector<PlotPoint> points;  // not finite: left out
};

// A picture of `width` x `height` characters for the points, with its scales at the left and below;
// points that share a column are averaged, and a later series is drawn over an earlier one. Two
// widths of a character make a height, so 64 x 16 is about as wide as two of its heights. "" where
// no point is finite.
std::string text_plot(const std::vector<PlotSeries>& series, int width = 64, int height = 16);

}  // namespace piton::cli
