#include "session/fault_options.h"

#include <charconv>
#include <map>

#include "base/error.h"

namespace piton {
namespace {

const std::map<std::string_view, FaultKind>& kinds_of_faults() {
  static const std::map<std::string_view, FaultKind> kinds{
      {"kill", FaultKind::kKill}, {"stop", FaultKind::kStop},   {"delay", FaultKind::kDelay},
      {"nan", FaultKind::kNan},   {"write", FaultKind::kWrite}, {"drop", FaultKind::kDrop}};
  return kinds;
}

[[noreturn]] void refuse_fault(std::string_view text) {
  throw Error(Fault::kUsage,
              "--fault: got {}, wanted kill:RANK:STEP, stop:RANK:STEP, nan:RANK:STEP, "
              "write:RANK:STEP, delay:RANK:STEP:SECONDS or drop:STEP:GROUP:KIND:N",
              text);
}

template <typename Number>
Number number_of(std::string_view word, Number least, std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc() || end != word.data() + word.size() || !(value >= least)) {
    refuse_fault(text);
  }
  return value;
}

}  // namespace

PlannedFault parse_fault(std::string_view text) {
  std::vector<std::string_view> words;
  for (std::string_view rest = text;;) {
    const std::size_t colon = rest.find(':');
    words.push_back(rest.substr(0, colon));
    if (colon == std::string_view::npos) break;
    rest.remove_prefix(colon + 1);
  }
  const auto found = kinds_of_faults().find(words[0]);
  if (found == kinds_of_faults().end()) refuse_fault(text);
  PlannedFault fault{.kind = found->second};
  const bool drop = fault.kind == FaultKind::kDrop;
  const bool delay = fault.kind == FaultKind::kDelay;
  if (words.size() != (drop ? 5U : delay ? 4U : 3U)) refuse_fault(text);
  if (drop) {
    fault.step = number_of<std::int64_t>(words[1], 1, text);
    fault.collective = {std::string(words[2]), std::string(words[3]),
                        number_of<std::int64_t>(words[4], 0, text)};
    return fault;
  }
  fault.rank = number_of<int>(words[1], 0, text);
  fault.step = number_of<std::int64_t>(words[2], 1, text);
  if (delay) fault.seconds = number_of<double>(words[3], 0, text);
  return fault;
}

std::vector<PlannedFault> FaultOptions::planned() const {
  std::vector<PlannedFault> all;
  for (const std::string& one : fault) all.push_back(parse_fault(one));
  return all;
}

}  // namespace piton
