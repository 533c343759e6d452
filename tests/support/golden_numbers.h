// Golden files of numbers, with blanks between them.
#pragma once

#include <istream>
#include <sstream>
#include <string>
#include <vector>

namespace piton::test {

// Those of the next line: none at the end of the file.
inline std::vector<double> next_numbers(std::istream& file) {
  std::string line;
  std::getline(file, line);
  std::istringstream words(line);
  std::vector<double> list;
  for (double one = 0; words >> one;) list.push_back(one);
  return list;
}

}  // namespace piton::test
