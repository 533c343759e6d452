// mutants list SEED PATH...   every fault of the C++ sources below the paths, in an order drawn
// from
//                             the seed, one a line: FILE OFFSET LINE KIND <tab> FROM <tab> TO
// mutants make FILE OFFSET KIND   makes that fault in the file
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <random>
#include <string>
#include <vector>

#include "base/files.h"
#include "faults.h"
#include "repo/source_tree.h"

namespace piton::mutate {
namespace {

std::string shown(std::string text) {
  for (char& c : text) {
    if (c == '\n' || c == '\t') c = ' ';
  }
  return text;
}

void list(std::uint64_t seed, const std::vector<std::string>& paths) {
  std::vector<std::string> lines;
  for (const std::string& path : paths) {
    for (const auto& [name, text] : repo::read_tree(path)) {
      for (const Fault& fault : faults_in(text, repo::is_header(name))) {
        lines.push_back(path + "/" + name + " " + std::to_string(fault.at) + " " +
                        std::to_string(line_of(text, fault.at)) + " " + fault.kind + "\t" +
                        shown(fault.from) + "\t" + shown(fault.to));
      }
    }
  }
  // std::shuffle is not the same everywhere; this is.
  std::mt19937_64 draw(seed);
  for (std::size_t left = lines.size(); left > 1; --left) {
    std::swap(lines[left - 1], lines[draw() % left]);
  }
  for (const std::string& line : lines) std::puts(line.c_str());
}

int make(const std::string& file, std::size_t offset, const std::string& kind) {
  const std::string text = read_text_file(file);
  for (const Fault& fault : faults_in(text, repo::is_header(file))) {
    if (fault.at != offset || fault.kind != kind) continue;
    write_text_file(file, with_fault(text, fault));
    return 0;
  }
  std::fprintf(stderr, "mutants: %s: no fault of kind %s at byte %zu\n", file.c_str(), kind.c_str(),
               offset);
  return 2;
}

int run(const std::vector<std::string>& words) {
  if (words.size() > 2 && words[0] == "list") {
    list(std::stoull(words[1]), {words.begin() + 2, words.end()});
    return 0;
  }
  if (words.size() == 4 && words[0] == "make")
    return make(words[1], std::stoull(words[2]), words[3]);
  std::fputs("usage: mutants list SEED PATH... | mutants make FILE OFFSET KIND\n", stderr);
  return 2;
}

}  // namespace
}  // namespace piton::mutate

int main(int count, char** words) {
  try {
    return piton::mutate::run({words + 1, words + count});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "mutants: %s\n", error.what());
    return 2;
  }
}
