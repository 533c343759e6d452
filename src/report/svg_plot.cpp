#include "report/svg_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "base/html.h"

namespace piton {
namespace {

// Units of the picture; the page scales it.
constexpr double kWidth = 640;
constexpr double kHeight = 260;
constexpr double kLeft = 58;
constexpr double kRight = 12;
constexpr double kTop = 30;
constexpr double kBottom = 26;
constexpr int kColumns = 560;  // of means: about one per unit

// The points of one column of the picture.
struct Column {
  double x = 0;
  double sum = 0;
  std::int64_t count = 0;
  PlotRange values;
};

// Points of equal columns gathered; each stays by itself where they are few.
std::vector<Column> columns_of(const Curve& curve, const PlotRange& x) {
  const bool few = curve.points.size() <= static_cast<std::size_t>(kColumns);
  std::vector<Column> columns;
  std::int64_t latest = -1;
  for (std::size_t i = 0; i < curve.points.size(); ++i) {
    const PlotPoint& point = curve.points[i];
    if (!is_finite(point)) continue;
    const double share = x.size() > 0 ? (point.x - x.low) / x.size() : 0.5;
    const auto column = few ? static_cast<std::int64_t>(i)
                            : static_cast<std::int64_t>(share * (kColumns - 1) + 0.5);
    if (column != latest) columns.emplace_back();
    latest = column;
    Column& into = columns.back();
    into.sum += point.y;
    into.count += 1;
    into.x += (point.x - into.x) / static_cast<double>(into.count);
    into.values.add(point.y);
  }
  return columns;
}

class Picture {
 public:
  Picture(const PlotRange& x, const PlotRange& y) : x_(x), y_(y) {
    // Room for what is level, and a little above and below.
    const double pad = y_.size() > 0 ? 0.05 * y_.size() : std::max(std::abs(y_.low) * 0.1, 1e-9);
    y_.low = y_.low >= 0 && y_.low < pad ? 0 : y_.low - pad;
    y_.high += pad;
    if (x_.size() <= 0) x_ = {x_.low - 0.5, x_.high + 0.5};
  }

  double at_x(double x) const {
    return kLeft + (x - x_.low) / x_.size() * (kWidth - kLeft - kRight);
  }
  double at_y(double y) const {
    return kHeight - kBottom - (y - y_.low) / y_.size() * (kHeight - kTop - kBottom);
  }

  std::string axes() const {
    std::string out;
    for (const double tick : round_ticks(y_.low, y_.high, 5)) {
      out += fmt::format(R"(<line class="grid" x1="{:.1f}" x2="{:.1f}" y1="{:.1f}" y2="{:.1f}"/>)"
                         R"(<text class="tick" x="{:.1f}" y="{:.1f}" text-anchor="end">{}</text>)",
                         kLeft, kWidth - kRight, at_y(tick), at_y(tick), kLeft - 6, at_y(tick) + 4,
                         short_number(tick));
    }
    for (const double tick : round_ticks(x_.low, x_.high, 6)) {
      out +=
          fmt::format(R"(<text class="tick" x="{:.1f}" y="{:.1f}" text-anchor="middle">{}</text>)",
                      at_x(tick), kHeight - 8, short_number(tick));
    }
    return out;
  }

  std::string curve(const Curve& curve) const {
    const std::vector<Column> columns = columns_of(curve, x_);
    std::string line;
    std::string upper;
    std::string lower;
    std::string dots;
    for (const Column& column : columns) {
      const double x = at_x(column.x);
      const double y = at_y(column.sum / static_cast<double>(column.count));
      line += fmt::format("{}{:.1f} {:.1f}", line.empty() ? "M" : "L", x, y);
      upper +=
          fmt::format("{}{:.1f} {:.1f}", upper.empty() ? "M" : "L", x, at_y(column.values.high));
      lower = fmt::format("L{:.1f} {:.1f}", x, at_y(column.values.low)) + lower;
      if (curve.dots || columns.size() == 1) {
        dots += fmt::format(R"(<circle cx="{:.1f}" cy="{:.1f}" r="3"/>)", x, y);
      }
    }
    std::string marks;
    for (const double mark : curve.marks) {
      if (mark < x_.low || mark > x_.high) continue;
      marks +=
          fmt::format(R"(<line class="mark" x1="{0:.1f}" x2="{0:.1f}" y1="{1:.1f}" y2="{2:.1f}"/>)",
                      at_x(mark), kTop, kHeight - kBottom);
    }
    const bool gathered = columns.size() < curve.points.size() && curve.points.size() > kColumns;
    return fmt::format(
        R"x(<g class="curve{}" style="--c:var(--c{})"><title>{}</title>{}<path d="{}"/>{}{}</g>)x",
        curve.faint ? " faint" : "", curve.color, html_escaped(curve.label),
        gathered ? fmt::format(R"(<path class="band" d="{}{}Z"/>)", upper, lower) : "", line, dots,
        marks);
  }

 private:
  PlotRange x_;
  PlotRange y_;
};

}  // namespace

std::string short_number(double value) {
  const double size = std::abs(value);
  if (size == 0) return "0";
  if (size < 1e-3) return fmt::format("{:.3g}", value);
  if (size < 1e4) return fmt::format("{:.4g}", value);
  if (size < 1e6) return fmt::format("{:.3g}k", value * 1e-3);
  if (size < 1e9) return fmt::format("{:.3g}M", value * 1e-6);
  return fmt::format("{:.3g}G", value * 1e-9);
}

std::vector<double> round_ticks(double low, double high, int most) {
  if (!(high > low) || most < 1) return {low};
  const double rough = (high - low) / most;
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (const double times : {1.0, 2.0, 5.0}) {
    if (times * power >= rough) {
      step = times * power;
      break;
    }
  }
  std::vector<double> ticks;
  const double first = std::ceil(low / step);
  for (int i = 0; i <= most; ++i) {
    const double tick = (first + i) * step;
    if (tick > high) break;
    ticks.push_back(tick);
  }
  return ticks;
}

std::string svg_plot(std::string_view title, const std::vector<Curve>& curves) {
  PlotRange x;
  PlotRange y;
  for (const Curve& curve : curves) {
    for (const PlotPoint& point : curve.points) {
      if (!is_finite(point)) continue;
      x.add(point.x);
      y.add(point.y);
    }
  }
  if (x.empty()) return "";
  const Picture picture(x, y);
  std::string out = fmt::format(R"(<svg viewBox="0 0 {:.0f} {:.0f}" role="img" aria-label="{}">)"
                                R"(<text class="title" x="{:.0f}" y="18">{}</text>)",
                                kWidth, kHeight, html_escaped(title), kLeft, html_escaped(title));
  out += picture.axes();
  for (const Curve& curve : curves) {
    if (std::any_of(curve.points.begin(), curve.points.end(), is_finite))
      out += picture.curve(curve);
  }
  return out + "</svg>";
}

}  // namespace piton
