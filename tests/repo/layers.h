// The list of folders and floors, src/LAYERS.
#pragma once

#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "repo/source_tree.h"

namespace piton::repo {

struct Layer {
  std::string floor;  // as written: "1.1"
  std::string folder;
  std::string contents;  // what follows #; "": nothing
};

// Lines of a floor, folders, and their contents after #. Other lines are comments.
inline std::vector<Layer> read_layers(const std::string& text) {
  std::vector<Layer> layers;
  for (const std::string& line : lines_of(text)) {
    const std::size_t hash = std::min(line.find('#'), line.size());
    const std::size_t begin = std::min(line.find_first_not_of("# ", hash), line.size());
    std::istringstream words(line.substr(0, hash));
    std::string floor;
    words >> floor;
    for (std::string folder; words >> folder;)
      layers.push_back({floor, folder, line.substr(begin)});
  }
  return layers;
}

// Folder -> floor.
inline std::map<std::string, double> read_floors(const std::string& text) {
  std::map<std::string, double> floors;
  for (const Layer& layer : read_layers(text)) floors[layer.folder] = std::stod(layer.floor);
  return floors;
}

}  // namespace piton::repo
