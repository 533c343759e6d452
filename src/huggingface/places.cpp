#include "huggingface/places.h"

#include "base/error.h"
#include "model/canonical_tensors.h"

namespace piton {

std::int64_t stored_row(const HfPlace& place, std::int64_t row) {
  if (place.chunk == 0) return place.first + row;
  return place.first + row / place.chunk * place.stride + row % place.chunk;
}

std::map<std::string, Shape> shapes_with_head(const ModelConfig& model) {
  ModelConfig with_head = model;
  with_head.tied = false;
  std::map<std::string, Shape> shapes;
  for (const CanonicalShape& one : canonical_tensors(with_head)) shapes[one.name] = one.shape;
  return shapes;
}

std::map<std::string, std::vector<std::int64_t>> hf_shapes(const std::vector<HfPlace>& places,
                                                           const ModelConfig& model) {
  const std::map<std::string, Shape> shapes = shapes_with_head(model);
  PITON_ASSERT(places.size() == shapes.size(), "{} places of {} tensors", places.size(),
               shapes.size());
  std::map<std::string, std::vector<std::int64_t>> wanted;
  for (const HfPlace& place : places) {
    const auto found = shapes.find(place.canonical);
    PITON_ASSERT(found != shapes.end(), "{} is no tensor of the model", place.canonical);
    const Shape& shape = found->second;
    std::vector<std::int64_t>& sizes = wanted[place.name];
    if (sizes.empty()) sizes.resize(static_cast<std::size_t>(shape.ndim()), 0);
    std::int64_t& rows = sizes[place.transposed ? 1 : 0];
    if (shape[0] > 0) rows = std::max(rows, stored_row(place, shape[0] - 1) + 1);
    if (shape.ndim() > 1) sizes[place.transposed ? 0 : 1] = shape[1];
  }
  return wanted;
}

std::vector<Assembly> hf_assemblies(const std::vector<HfPlace>& places, const ModelConfig& model) {
  const std::map<std::string, Shape> shapes = shapes_with_head(model);
  const std::map<std::string, std::vector<std::int64_t>> sizes = hf_shapes(places, model);
  std::vector<Assembly> assemblies;
  std::map<std::string, std::size_t> index;
  for (const HfPlace& place : places) {
    if (model.tied && place.canonical == "head.weight") continue;
    const Shape& shape = shapes.at(place.canonical);
    const auto [found, is_new] = index.try_emplace(place.name, assemblies.size());
    if (is_new) {
      assemblies.push_back({.name = place.name,
                            .shape = Shape(sizes.at(place.name)),
                            .transposed = place.transposed && shape.ndim() > 1});
    }
    Assembly& assembly = assemblies[found->second];
    for_each_chunk(place, 0, shape[0], [&](std::int64_t begin, std::int64_t end) {
      AssemblyPart part{.name = place.canonical, .row = stored_row(place, begin)};
      part.start.append(begin);
      part.extent.append(end - begin);
      if (shape.ndim() > 1) {
        part.start.append(0);
        part.extent.append(shape[1]);
      }
      assembly.parts.push_back(std::move(part));
    });
  }
  return assemblies;
}

}  // namespace piton
