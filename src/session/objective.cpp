#include "session/objective.h"

#include <algorithm>

namespace piton {

void add_figures(const std::vector<ObjectiveFigure>& more, std::vector<ObjectiveFigure>& figures) {
  for (const ObjectiveFigure& one : more) {
    if (one.count == 0) continue;
    const auto same = std::find_if(figures.begin(), figures.end(), [&](const ObjectiveFigure& old) {
      return old.name == one.name;
    });
    if (same == figures.end()) {
      figures.push_back(one);
      continue;
    }
    same->sum += one.sum;
    same->count += one.count;
  }
}

}  // namespace piton
