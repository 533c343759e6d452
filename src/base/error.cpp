#include "base/error.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <system_error>
#include <vector>

namespace piton {

std::string_view name(Fault fault) {
  switch (fault) {
    case Fault::kUsage:
      return "usage";
    case Fault::kData:
      return "data";
    case Fault::kMemory:
      return "memory";
    case Fault::kDiverged:
      return "diverged";
    case Fault::kPeer:
      return "peer";
    case Fault::kSaved:
      return "saved";
  }
  PITON_ASSERT(false, "fault {}", static_cast<int>(fault));
}

std::string system_message(int code) { return std::generic_category().message(code); }

namespace {

// Insertions, deletions, replacements and swaps of neighbors, each of cost 1.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  const std::size_t width = b.size() + 1;
  std::vector<std::size_t> cost((a.size() + 1) * width);
  const auto at = [&](std::size_t i, std::size_t j) -> std::size_t& { return cost[i * width + j]; };
  for (std::size_t i = 0; i <= a.size(); ++i) at(i, 0) = i;
  for (std::size_t j = 0; j <= b.size(); ++j) at(0, j) = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = at(i - 1, j - 1) + (a[i - 1] == b[j - 1] ? 0 : 1);
      at(i, j) = std::min({at(i - 1, j) + 1, at(i, j - 1) + 1, replaced});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        at(i, j) = std::min(at(i, j), at(i - 2, j - 2) + 1);
      }
    }
  }
  return at(a.size(), b.size());
}

}  // namespace

std::string nearest_name(std::string_view given, std::span<const std::string> known) {
  // Typing errors: one letter in a short word, one in three of a longer one, three at most: names
  // of other programs differ by more.
  const std::size_t limit = given.size() < 2 ? 0 : std::clamp<std::size_t>(given.size() / 3, 1, 3);
  std::size_t best = limit + 1;
  std::string nearest;
  // A longer name is not a typing error, and the time of the distance is quadratic.
  constexpr std::size_t kLongest = 200;
  if (given.size() > kLongest) return nearest;
  for (const std::string& name : known) {
    const std::size_t longer = std::max(name.size(), given.size());
    if (longer - std::min(name.size(), given.size()) >= best) continue;
    const std::size_t distance = edit_distance(given, name);
    if (distance < best) {
      best = distance;
      nearest = name;
    }
  }
  return nearest;
}

void assertion_failed(const char* condition, const std::string& message, const char* file, int line,
                      const char* function) {
  std::fprintf(stderr, "piton: internal error at %s:%d (%s): %s is false%s%s; please report this\n",
               file, line, function, condition, message.empty() ? "" : ": ", message.c_str());
  std::abort();
}

}  // namespace piton
