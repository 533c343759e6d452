#include "data/labels/found_labels.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>

#include "base/error.h"
#include "base/listed.h"
#include "base/options/problem_types.h"
#include "data/labels/labeled_records.h"

namespace piton {
namespace {

bool is_number(const std::string& label) {
  double value = 0;
  const char* const end = label.data() + label.size();
  const auto read = std::from_chars(label.data(), end, value);
  return read.ec == std::errc() && read.ptr == end && std::isfinite(value);
}

void add_label(const std::string& label, std::set<std::string>& all) {
  if (label.empty()) throw Error(Fault::kData, "a label is empty, wanted a name or a number");
  if (!whole_number(label) && is_number(label)) {
    throw Error(Fault::kData,
                "the label is {}; --problem-type {} learns numbers, and --label-names names labels "
                "that look like them",
                label, kRegression);
  }
  all.insert(label);
}

}  // namespace

FoundLabels labels_of_records(const std::vector<std::string>& files, const std::string& map_keys,
                              bool several, Log& log) {
  const RecordFields fields(kLabeledFields, "", map_keys);
  std::set<std::string> all;
  const auto add = [&](const Conversation& text) {
    if (text.label) add_label(*text.label, all);
    for (const std::string& label : text.label_list.value_or(std::vector<std::string>()))
      add_label(label, all);
  };
  for (const std::string& file : files)
    for_each_labeled(file, fields, /*needs_label=*/true, log, add);
  if (all.empty() || (all.size() == 1 && !several)) {
    throw Error(Fault::kData, "{}: {}, wanted two or more labels", listed(files),
                all.empty() ? "no text has a label"
                            : fmt::format("all texts have the label \"{}\"", *all.begin()));
  }
  FoundLabels found{.count = std::ssize(all), .names = {all.begin(), all.end()}};
  if (!std::ranges::all_of(all, [](const auto& one) { return whole_number(one).has_value(); }))
    return found;
  const auto size_of = [](const std::string& one) { return *whole_number(one); };
  std::ranges::stable_sort(found.names, {}, size_of);
  std::int64_t next = 0;
  const auto is_next = [&](const std::string& one) { return one == fmt::to_string(next++); };
  if (std::ranges::all_of(found.names, is_next)) found.names.clear();
  return found;
}

}  // namespace piton
