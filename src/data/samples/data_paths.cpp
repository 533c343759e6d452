#include "data/samples/data_paths.h"

#include <charconv>
#include <filesystem>
#include <set>
#include <string_view>

#include "base/error.h"
#include "base/trimmed.h"

namespace piton {
namespace {

std::string absolute_path(std::string_view path) {
  return std::filesystem::absolute(trimmed(path)).lexically_normal().string();
}

bool is_weight(std::string_view text) {
  text = trimmed(text);
  double value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  return code == std::errc() && end == text.data() + text.size();
}

// Prefixes alone, or weights and prefixes in turn.
void make_absolute(std::vector<std::string>& words) {
  bool weighted = words.size() % 2 == 0;
  for (std::size_t i = 0; i < words.size(); i += 2) weighted = weighted && is_weight(words[i]);
  for (std::size_t i = weighted ? 1 : 0; i < words.size(); i += weighted ? 2 : 1) {
    words[i] = absolute_path(words[i]);
  }
}

// "NAME: W START:END PREFIX, W START:END PREFIX"
std::string with_absolute_prefixes(const std::string& text) {
  constexpr std::string_view kBlanks = " \t";
  std::string all = text.substr(0, text.find(':') + 1);
  std::string_view rest = std::string_view(text).substr(all.size());
  while (true) {
    const auto comma = rest.find(',');
    const std::string_view part = trimmed(rest.substr(0, comma));
    // The prefix is what comes after two words.
    std::size_t at = 0;
    for (int word = 0; word < 2 && at != part.npos; ++word) {
      at = part.find_first_of(kBlanks, at);
      if (at != part.npos) at = part.find_first_not_of(kBlanks, at);
    }
    if (at == part.npos) return text;  // malformed, as its reader says
    const std::string prefix = absolute_path(part.substr(at));
    if (prefix.find(',') != prefix.npos) return text;  // would be read as two
    all += " " + std::string(part.substr(0, at)) + prefix;
    if (comma == rest.npos) return all;
    all += ",";
    rest.remove_prefix(comma + 1);
  }
}

// The last part of a path and `folders` before it; no more than the path.
std::string end_of_path(const std::string& path, int folders) {
  std::size_t at = path.rfind('/');
  for (int i = 0; i < folders; ++i) {
    if (at == path.npos || at == 0) return path;
    at = path.rfind('/', at - 1);
  }
  return at == path.npos ? path : path.substr(at + 1);
}

}  // namespace

std::vector<std::string> distinct_ends(const std::vector<std::string>& paths) {
  PITON_ASSERT(std::set<std::string>(paths.begin(), paths.end()).size() == paths.size());
  std::vector<std::string> ends(paths.size());
  for (int folders = 0;; ++folders) {
    for (std::size_t i = 0; i < paths.size(); ++i) ends[i] = end_of_path(paths[i], folders);
    if (std::set<std::string>(ends.begin(), ends.end()).size() == ends.size()) return ends;
  }
}

DataOptions with_absolute_paths(DataOptions options) {
  for (std::vector<std::string>* words : {&options.data_path, &options.train_data_path,
                                          &options.valid_data_path, &options.test_data_path}) {
    make_absolute(*words);
  }
  for (std::vector<std::string>* texts :
       {&options.train_weighted_split_paths, &options.valid_weighted_split_paths,
        &options.test_weighted_split_paths}) {
    for (std::string& text : *texts) text = with_absolute_prefixes(text);
  }
  if (options.data_cache_path) options.data_cache_path = absolute_path(*options.data_cache_path);
  return options;
}

}  // namespace piton
