// Pages of documentation for the repository tests.
#pragma once

#include <filesystem>
#include <regex>
#include <string>

#include "repo/source_tree.h"

namespace piton::repo {

// Every page of the repository that readers see, by its path: "docs/cli.md".
inline SourceTree read_pages(const std::filesystem::path& root) {
  SourceTree pages;
  const auto add = [&](const std::filesystem::path& file) {
    if (file.extension() == ".md")
      pages[file.lexically_relative(root).generic_string()] = read_text_file(file);
  };
  for (const auto& entry : std::filesystem::directory_iterator(root)) add(entry.path());
  for (const char* folder : {"docs", "recipes", "examples", "bench", "python"}) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root / folder))
      add(entry.path());
  }
  return pages;
}

// `page` without what is code: blocks between fences, and words between backticks.
inline std::string without_code(const std::string& page) {
  std::string text;
  bool fenced = false;
  for (const std::string& line : lines_of(page)) {
    const bool fence = line.starts_with("```");
    if (!fenced && !fence) text += line;
    text += '\n';
    fenced = fenced != fence;
  }
  return std::regex_replace(text, std::regex("`[^`\n]*`"), "``");
}

}  // namespace piton::repo
