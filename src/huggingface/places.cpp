#include "huggingface/places.h"

#include <set>

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

namespace {

// Sizes of the tensors in the files, with the rows of stacks counted through.
std::map<std::string, std::vector<std::int64_t>> flat_shapes(const std::vector<HfPlace>& places,
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
    const bool matrix = shape.ndim() > 1 || is_turned_stack(place);
    if (sizes.empty()) sizes.resize(matrix ? 2 : 1, 0);
    std::int64_t& rows = sizes[place.transposed ? 1 : 0];
    if (shape[0] > 0) rows = std::max(rows, stored_row(place, shape[0] - 1) + 1);
    if (shape.ndim() > 1) sizes[place.transposed ? 0 : 1] = shape[1];
    if (is_turned_stack(place)) sizes[0] = place.stacks * (shape.ndim() > 1 ? shape[1] : 1);
  }
  return wanted;
}

// Rows of zeros where no part is: positions that a model has and does not use (OPT).
void fill_gaps(Assembly& assembly) {
  if (assembly.matrices > 1) return;  // all columns are there
  std::ranges::sort(assembly.parts, {}, &AssemblyPart::row);
  std::vector<AssemblyPart> gaps;
  std::int64_t end = 0;
  for (const AssemblyPart& part : assembly.parts) {
    if (part.row > end) {
      AssemblyPart gap{.name = "", .start = part.start, .extent = part.extent, .row = end};
      gap.start[0] = 0;
      gap.extent[0] = part.row - end;
      gaps.push_back(std::move(gap));
    }
    end = std::max(end, part.row + part.extent[0]);
  }
  assembly.parts.insert(assembly.parts.end(), gaps.begin(), gaps.end());
}

// A whole canonical tensor as columns of its matrix.
AssemblyPart turned_part(const HfPlace& place, const Shape& shape) {
  PITON_ASSERT(place.chunk <= 1, "{}: heads in a stack that is transposed", place.name);
  return {.name = place.canonical,
          .start = whole_run(shape).start,
          .extent = shape,
          .row = place.first,
          .step = place.chunk == 0 ? 1 : place.stride,
          .matrix = place.matrix};
}

}  // namespace

std::map<std::string, std::vector<std::int64_t>> hf_shapes(const std::vector<HfPlace>& places,
                                                           const ModelConfig& model) {
  std::map<std::string, std::vector<std::int64_t>> wanted = flat_shapes(places, model);
  const std::map<std::string, Shape> shapes = shapes_with_head(model);
  std::set<std::string> stacked;
  for (const HfPlace& place : places) {
    if (place.stacks == 0 || !stacked.insert(place.name).second) continue;
    if (is_turned_stack(place) && shapes.at(place.canonical).ndim() == 1) continue;
    std::vector<std::int64_t>& sizes = wanted.at(place.name);
    PITON_ASSERT(sizes[0] % place.stacks == 0, "{}: {} rows in {}", place.name, sizes[0],
                 place.stacks);
    sizes[0] /= place.stacks;
    sizes.insert(sizes.begin(), place.stacks);
  }
  return wanted;
}

std::vector<Assembly> hf_assemblies(const std::vector<HfPlace>& places, const ModelConfig& model) {
  const std::map<std::string, Shape> shapes = shapes_with_head(model);
  const std::map<std::string, std::vector<std::int64_t>> sizes = flat_shapes(places, model);
  std::vector<Assembly> assemblies;
  std::map<std::string, std::size_t> index;
  for (const HfPlace& place : places) {
    if (model.tied && place.canonical == "head.weight") continue;
    const Shape& shape = shapes.at(place.canonical);
    const auto [found, is_new] = index.try_emplace(place.name, assemblies.size());
    if (is_new) {
      assemblies.push_back(
          {.name = place.name,
           .shape = Shape(sizes.at(place.name)),
           .transposed = place.transposed && (shape.ndim() > 1 || is_turned_stack(place)),
           .matrices = is_turned_stack(place) ? place.stacks : 1});
    }
    Assembly& assembly = assemblies[found->second];
    if (is_turned_stack(place)) {
      assembly.parts.push_back(turned_part(place, shape));
      continue;
    }
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
  for (Assembly& assembly : assemblies) fill_gaps(assembly);
  return assemblies;
}

}  // namespace piton
