// A folder of sources for the repository tests: path -> content, read from the disk or made up by a
// test.
#pragma once

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/files/files.h"

namespace piton::repo {

// Paths are relative to the root, with forward slashes: "base/files/files.h".
using SourceTree = std::map<std::string, std::string>;

inline bool is_header(std::string_view path) {
  return path.ends_with(".h") || path.ends_with(".cuh");
}

inline bool is_source(std::string_view path) {
  return is_header(path) || path.ends_with(".cpp") || path.ends_with(".cu");
}

// Every C++ and CUDA file below `root`.
inline SourceTree read_tree(const std::filesystem::path& root) {
  SourceTree tree;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
    const std::string path = entry.path().lexically_relative(root).generic_string();
    if (entry.is_regular_file() && is_source(path)) tree[path] = read_text_file(entry.path());
  }
  return tree;
}

inline std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    lines.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

enum class Blanked { kComment, kLiteral };

// Calls `see` with each comment of `text`, its marks included, and with the inside of each literal,
// as [begin, end). What is between the quotes of an #include is a literal too.
inline void for_each_blanked(
    std::string_view text,
    const std::function<void(Blanked kind, std::size_t begin, std::size_t end)>& see) {
  const auto word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; };
  // A quote after a letter or digit parts the digits of a number, unless that is U, u, L or u8.
  const auto starts_character = [&](std::size_t i) {
    std::size_t begin = i;
    while (begin > 0 && word(text[begin - 1])) --begin;
    const std::string_view before = text.substr(begin, i - begin);
    return before.empty() || before == "U" || before == "u" || before == "L" || before == "u8";
  };
  for (std::size_t i = 0; i < text.size();) {
    std::size_t end = i + 1;
    if (text.substr(i, 2) == "//") {
      end = std::min(text.find('\n', i), text.size());
      see(Blanked::kComment, i, end);
    } else if (text.substr(i, 2) == "/*") {
      end = text.find("*/", i + 2);
      end = end == text.npos ? text.size() : end + 2;
      see(Blanked::kComment, i, end);
    } else if (text.substr(i, 2) == "R\"" && (i == 0 || !word(text[i - 1]))) {
      const std::size_t open = std::min(text.find('(', i), text.size());
      const std::string close = ")" + std::string(text.substr(i + 2, open - i - 2)) + "\"";
      end = text.find(close, open);
      end = end == text.npos ? text.size() : end + close.size();
      see(Blanked::kLiteral, i, end);
    } else if (text[i] == '"' || (text[i] == '\'' && starts_character(i))) {
      while (end < text.size() && text[end] != text[i] && text[end] != '\n') {
        end += text[end] == '\\' ? 2 : 1;
      }
      end = std::min(end, text.size());
      see(Blanked::kLiteral, i + 1, end);
      ++end;
    }
    i = end;
  }
}

// `text` with comments and the insides of literals blanked, line breaks kept.
inline std::string code_only(std::string_view text) {
  std::string code(text);
  for_each_blanked(text, [&](Blanked, std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      if (code[i] != '\n') code[i] = ' ';
    }
  });
  return code;
}

// The comments of `text` without their marks, line breaks kept. Each character of code is ';', so
// that words of two comments are not one phrase.
inline std::string comments_only(std::string_view text) {
  std::string comments(text);
  for (char& c : comments) {
    if (c != '\n' && c != ' ') c = ';';
  }
  for_each_blanked(text, [&](Blanked kind, std::size_t begin, std::size_t end) {
    if (kind != Blanked::kComment) return;
    for (std::size_t i = begin; i < end; ++i) comments[i] = text[i];
    comments.replace(begin, 2, "  ");
    if (text.substr(begin, 2) == "/*" && end >= begin + 4) comments.replace(end - 2, 2, "  ");
  });
  return comments;
}

// The insides of the literals of `text`, line breaks kept. Quotes and escapes are blanks, so that
// adjacent literals are one text; each other character is ';'.
inline std::string literals_only(std::string_view text) {
  std::string literals(text);
  for (char& c : literals) {
    if (c != '\n' && c != ' ') c = ';';
  }
  for_each_blanked(text, [&](Blanked kind, std::size_t begin, std::size_t end) {
    if (kind != Blanked::kLiteral) return;
    for (std::size_t i = begin; i < end; ++i) {
      const bool escape = text[i] == '\\' && i + 1 < end;
      literals[i] = escape ? ' ' : text[i];
      if (escape) literals[++i] = ' ';
    }
    const char quote = begin > 0 ? text[begin - 1] : ' ';
    if (quote != '"' && quote != '\'') return;
    literals[begin - 1] = ' ';
    if (end < text.size() && text[end] == quote) literals[end] = ' ';
  });
  return literals;
}

// "src/base/files/files.h:12: what"
inline std::string at_line(std::string_view path, std::size_t index, std::string_view what) {
  return std::string(path) + ":" + std::to_string(index + 1) + ": " + std::string(what);
}

}  // namespace piton::repo
