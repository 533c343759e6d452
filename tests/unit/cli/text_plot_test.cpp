#include "cli/terminal/text_plot.h"

#include <gtest/gtest.h>

#include <limits>

namespace piton::cli {
namespace {

TEST(TextPlot, PutsPointsAtTheirPlaces) {
  const std::string picture =
      text_plot({{.mark = '*', .name = "loss", .points = {{1, 4}, {2, 3}, {3, 2}, {4, 1}, {5, 0}}},
                 {.mark = 'o', .name = "valid", .points = {{3, 4}}}},
                5, 5);
  EXPECT_EQ(picture,
            "    4.000 |* o\n"
            "          | *\n"
            "    2.000 |  *\n"
            "          |   *\n"
            "    0.000 |    *\n"
            "          +-----\n"
            "           1   5\n"
            "           * loss, o valid\n");
}

TEST(TextPlot, AveragesPointsOfOneColumnAndLeavesOutWhatIsNotFinite) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::string picture =
      text_plot({{.mark = '*', .name = "loss", .points = {{0, 1}, {0, 3}, {1, 5}, {2, nan}}},
                 {.mark = 'o', .name = "none"}},
                2, 3);
  EXPECT_EQ(picture,
            "    5.000 | *\n"
            "    3.500 |\n"
            "    2.000 |*\n"
            "          +--\n"
            "           01\n"
            "           * loss\n");
  EXPECT_EQ(text_plot({{.points = {{1, nan}}}}), "");
}

TEST(TextPlot, ShowsASingleValue) {
  EXPECT_NE(text_plot({{.mark = '*', .name = "loss", .points = {{7, 2}}}}).find("2.000"),
            std::string::npos);
}

}  // namespace
}  // namespace piton::cli
