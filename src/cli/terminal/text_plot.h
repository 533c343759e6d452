// Plots numbers with characters, for a terminal.
#pragma once

#include <string>
#include <vector>

#include "report/plot_points.h"

namespace piton::cli {

struct PlotSeries {
  char mark = '*';
  std::string name;               // for the legend
  std::vector<PlotPoint> points;  // points that are not finite are skipped
};

// A plot of `width` x `height` characters, with scales on the left and below. Points in one column
// are averaged, and later series are drawn over earlier ones. A character is about twice as high as
// wide, so 64 x 16 looks twice as wide as high. "" if no point is finite.
std::string text_plot(const std::vector<PlotSeries>& series, int width = 64, int height = 16);

}  // namespace piton::cli
