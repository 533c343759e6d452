// mutants list SEED PATH...
//   every fault of the C++ sources below the paths, in an order drawn from the seed, one a line:
//   NUMBER FILE OFFSET LINE KIND <tab> FROM <tab> TO
// mutants weave LIST SOURCE COPY SWITCH_HEADER
//   puts the faults of LIST, lines as above, into the files of COPY, from those of SOURCE; prints
//   for each where it is: NUMBER FILE FIRST_LINE LAST_LINE VARIABLE (weave.h). Files that have
//   what they should have are not written again, so that they are not compiled again.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <map>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "base/files/files.h"
#include "faults.h"
#include "repo/source_tree.h"
#include "weave.h"

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
  for (std::size_t i = 0; i < lines.size(); ++i) std::printf("%zu %s\n", i, lines[i].c_str());
}

void weave_files(const std::string& list_path, const std::filesystem::path& source,
                 const std::filesystem::path& copy, const std::string& switch_header) {
  struct Wanted {
    int number;
    std::size_t at;
    std::string kind;
  };
  std::map<std::string, std::vector<Wanted>> wanted;
  for (const std::string& line : repo::lines_of(read_text_file(list_path))) {
    std::istringstream words(line);
    Wanted one{};
    std::string file;
    std::size_t unused = 0;
    words >> one.number >> file >> one.at >> unused >> one.kind;
    wanted[file].push_back(one);
  }
  for (const auto& [name, wanted_here] : wanted) {
    const std::string text = read_text_file(source / name);
    std::vector<NumberedFault> faults;
    for (const Fault& fault : faults_in(text, repo::is_header(name))) {
      for (const Wanted& one : wanted_here) {
        if (one.at == fault.at && one.kind == fault.kind) faults.push_back({one.number, fault});
      }
    }
    const Woven woven = weave(text, faults, switch_header);
    const std::string& now = woven.places.empty() ? text : woven.text;
    if (read_text_file(copy / name) != now) write_text_file(copy / name, now);
    for (const Place& place : woven.places) {
      std::printf("%d %s %zu %zu %s\n", place.number, name.c_str(), place.first_line,
                  place.last_line, place.variable.c_str());
    }
  }
}

int run(const std::vector<std::string>& words) {
  if (words.size() > 2 && words[0] == "list") {
    list(std::stoull(words[1]), {words.begin() + 2, words.end()});
    return 0;
  }
  if (words.size() == 5 && words[0] == "weave") {
    weave_files(words[1], words[2], words[3], words[4]);
    return 0;
  }
  std::fputs("usage: mutants list SEED PATH... | mutants weave LIST SOURCE COPY SWITCH_HEADER\n",
             stderr);
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
