#include "data/corpus/corpus_files.h"

#include <algorithm>

namespace piton {
namespace {

// Length of what comes after the prefix of a corpus in the names of its files; 0 for none.
std::size_t ending_length(std::string_view rest) {
  constexpr std::string_view kBegin = "_packed_", kEnd = "_document";
  std::size_t length = 0;
  if (rest.starts_with(kBegin)) {
    const std::size_t end = rest.find(kEnd);
    const std::string_view column = rest.substr(kBegin.size(), end - kBegin.size());
    const bool is_column = end != rest.npos && std::ranges::all_of(column, [](char c) {
                             return (c >= 'a' && c <= 'z') || c == '_';
                           });
    if (is_column) length = end + kEnd.size();
  }
  for (const std::string_view type : {".bin", ".idx", ".json"}) {
    if (rest.substr(length).starts_with(type)) return length + type.size();
  }
  return length;
}

}  // namespace

std::string CorpusFiles::file_of(const std::string& prefix) const {
  for (const auto& [start, file] : by_prefix_) {
    if (!prefix.starts_with(start)) continue;
    if (ending_length(std::string_view(prefix).substr(start.size())) + start.size() ==
        prefix.size())
      return file;
  }
  return "";
}

std::string CorpusFiles::named_in(std::string_view text) const {
  std::string named(text);
  for (const auto& [prefix, file] : by_prefix_) {
    for (std::size_t at = 0; (at = named.find(prefix, at)) != named.npos; at += file.size()) {
      const std::size_t rest = at + prefix.size();
      named.replace(at, prefix.size() + ending_length(std::string_view(named).substr(rest)), file);
    }
  }
  return named;
}

}  // namespace piton
