#include "megatron/format/named_tensors.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "base/error.h"
#include "base/listed.h"
#include "checkpoint/safetensors.h"
#include "megatron/format/names.h"

namespace piton {
namespace {

constexpr std::size_t kMostDicts = 1000;                        // of a module tree, which has five
constexpr std::int64_t kComparedBytes = std::int64_t{4} << 20;  // at a time

using EachTensor = std::function<void(const std::string&, const PickleValue&)>;

void visit_tree(const PickleValue& tree, const std::string& prefix,
                std::set<const PickleValue*>& seen, const EachTensor& each) {
  if (seen.size() > kMostDicts || !seen.insert(&tree).second) return;
  for (const auto& [key, value] : tree.pairs) {
    if (key->kind != PickleValue::Kind::kText) continue;
    const std::string name = prefix.empty() ? key->text : prefix + "." + key->text;
    if (value->kind == PickleValue::Kind::kTensor) each(name, *value);
    if (value->kind == PickleValue::Kind::kDict) visit_tree(*value, name, seen, each);
  }
}

// AscendSpeed without --mlp-layer-fusion names the upper projection as its fused one, next to a
// separate gate.
void name_up_apart(BoxedTensors& tensors, std::vector<std::string>& order) {
  std::vector<std::string> fused;
  for (const auto& [key, tensor] : tensors) {
    const std::size_t at = key.find(".fc1.");
    if (at == key.npos) continue;
    const std::string layer = key.substr(0, at);
    const std::string end = key.substr(at + 5);
    if (tensors.contains(layer + ".gate." + end) && !tensors.contains(layer + ".up." + end))
      fused.push_back(key);
  }
  for (const std::string& key : fused) {
    auto node = tensors.extract(key);
    node.key().replace(key.find(".fc1."), 5, ".up.");
    std::ranges::replace(order, key, node.key());
    tensors.insert(std::move(node));
  }
}

// Keys of an encoder keep their beginning in a model that has a decoder too, whose layers attend to
// it; there the norm before that attention is called like that before the MLP elsewhere. And the
// norms of small rows are called like those of heads of queries and keys elsewhere, and that before
// the gated delta rule like that before attention.
class StackKeys {
 public:
  explicit StackKeys(const BoxedTensors& tensors) {
    both_ = std::ranges::any_of(
        tensors, [](const auto& one) { return one.first.find(".cross_q.") != one.first.npos; });
    inter_ = std::ranges::any_of(
        tensors, [](const auto& one) { return one.first.find(".inter_norm.") != one.first.npos; });
    latent_ = std::ranges::any_of(tensors, [](const auto& one) {
      return one.first.find(".kv_up.") != one.first.npos ||
             one.first.find(".k_own.") != one.first.npos;
    });
    for (const auto& one : tensors) {
      const std::size_t at = one.first.find(".delta_out.");
      if (at != one.first.npos) with_states_.insert(one.first.substr(0, at));
    }
  }

  std::string of(const std::string& key) const {
    constexpr std::string_view kInputNorm = ".input_norm.";
    const std::size_t norm = key.find(kInputNorm);
    if (norm != key.npos && with_states_.contains(key.substr(0, norm)))
      return std::string(key).replace(norm, kInputNorm.size(), ".state_norm.");
    for (const auto& [from, to] :
         {std::pair{".q_norm.", ".q_up_norm."}, {".k_norm.", ".kv_up_norm."}}) {
      const std::size_t at = latent_ ? key.find(from) : key.npos;
      if (at != key.npos) return std::string(key).replace(at, std::string_view(from).size(), to);
    }
    const bool of_encoder = key.starts_with(kEncoderKeys);
    if (!both_) return of_encoder ? key.substr(kEncoderKeys.size()) : key;
    if (of_encoder || !inter_) return key;
    std::string own = key;
    for (const auto& [from, to] :
         {std::pair{".post_norm.", ".cross_norm."}, std::pair{".inter_norm.", ".post_norm."}}) {
      const std::size_t at = own.find(from);
      if (at == own.npos) continue;
      return own.replace(at, std::string_view(from).size(), to);
    }
    return own;
  }

 private:
  bool both_ = false;
  bool inter_ = false;
  bool latent_ = false;
  std::set<std::string> with_states_;  // layers with the gated delta rule
};

// Rows [first, last) of all columns.
void read_rows(const BoxedTensor& tensor, std::int64_t first, std::int64_t last,
               std::vector<std::byte>& bytes) {
  const std::int64_t width = size_bytes(tensor.dtype);
  bytes.assign(static_cast<std::size_t>((last - first) * tensor.columns * width), std::byte{0});
  for (const TensorBox& box : tensor.boxes) {
    PITON_ASSERT(!box.transposed, "rows of a transposed matrix");
    const std::int64_t end = std::min(last, box.row + box.rows);
    for (std::int64_t row = std::max(first, box.row); row < end; ++row) {
      const std::int64_t at = ((row - first) * tensor.columns + box.column) * width;
      box.file->read_at(box.offset + (row - box.row) * box.stride * width,
                        std::span(bytes).subspan(static_cast<std::size_t>(at),
                                                 static_cast<std::size_t>(box.columns * width)));
    }
  }
}

}  // namespace

void visit_tensors(const PickleValue& tree, const EachTensor& each) {
  std::set<const PickleValue*> seen;
  visit_tree(tree, "", seen, each);
}

BoxedTensor boxed_tensor(const RegularFile& file, const TorchTensor& tensor,
                         const std::string& where, const std::string& name) {
  const std::optional<DType> dtype = dtype_of_safetensors(tensor.dtype);
  if (!dtype || *dtype == DType::kI64 || *dtype == DType::kI32 || *dtype == DType::kU8) {
    throw Error(Fault::kData, "{}: {} is of type {}, wanted F32, BF16, F16 or F64", where, name,
                tensor.dtype);
  }
  const std::size_t dims = tensor.shape.size();
  std::int64_t stride = 0;
  if (dims == 1 && tensor.strides[0] == 1) stride = 1;
  if (dims == 2 && tensor.strides[1] == 1 && tensor.strides[0] >= tensor.shape[1])
    stride = tensor.strides[0];
  // The filters of a convolution: [channels, 1, width].
  const bool filters = dims == 3 && tensor.shape[1] == 1 && tensor.strides[2] == 1 &&
                       tensor.strides[0] >= tensor.shape[2];
  if (filters) stride = tensor.strides[0];
  if (stride == 0) {
    throw Error(Fault::kData,
                "{}: {} is of shape [{}] with strides [{}], wanted a matrix or a vector", where,
                name, fmt::join(tensor.shape, ", "), fmt::join(tensor.strides, ", "));
  }
  const std::int64_t columns = dims == 1 ? 1 : tensor.shape.back();
  if (tensor.shape[0] < 1 || columns < 1) {
    throw Error(Fault::kData, "{}: {} is of shape [{}], wanted a matrix or a vector with elements",
                where, name, fmt::join(tensor.shape, ", "));
  }
  return {.dtype = *dtype,
          .rows = tensor.shape[0],
          .columns = columns,
          .boxes = {{.file = &file,
                     .offset = tensor.offset,
                     .rows = tensor.shape[0],
                     .columns = columns,
                     .stride = stride}}};
}

bool have_same_values(const BoxedTensor& a, const BoxedTensor& b) {
  if (a.dtype != b.dtype || a.rows != b.rows || a.columns != b.columns) return false;
  const std::int64_t step = std::clamp<std::int64_t>(
      kComparedBytes / (a.columns * size_bytes(a.dtype)), 1, std::max<std::int64_t>(a.rows, 1));
  std::vector<std::byte> ours;
  std::vector<std::byte> theirs;
  for (std::int64_t row = 0; row < a.rows; row += step) {
    const std::int64_t end = std::min(row + step, a.rows);
    read_rows(a, row, end, ours);
    read_rows(b, row, end, theirs);
    if (ours != theirs) return false;
  }
  return true;
}

void NamedTensors::add(const std::string& name, const std::function<BoxedTensor()>& make) {
  if (is_ignored_by_megatron(name)) return;
  std::optional<std::string> key = megatron_key(name);
  if (key && is_in_encoder(name)) *key = std::string(kEncoderKeys) + *key;
  if (!key) {
    unknown_.push_back(name);
    return;
  }
  BoxedTensor tensor = make();
  const auto known = tensors_.find(*key);
  if (known == tensors_.end()) {
    tensors_.emplace(*key, std::move(tensor));
    order_.push_back(*key);
  } else if (!have_same_values(known->second, tensor)) {
    throw Error(Fault::kData, "{}: {} is there twice, under two names", where_, name);
  }
}

void NamedTensors::add_tree(const TorchFile& file, const PickleValue& tree) {
  visit_tensors(tree, [&](const std::string& name, const PickleValue& value) {
    add(name, [&] { return boxed_tensor(file.file(), file.tensor(value, name), where_, name); });
  });
}

BoxedTensors NamedTensors::take() {
  if (!unknown_.empty()) {
    throw Error(Fault::kData, "{}: tensors that are not of a model that Piton has ({}): {}", where_,
                unknown_.size(), listed(unknown_));
  }
  const StackKeys stacks(tensors_);
  BoxedTensors tensors;
  for (auto& [key, tensor] : tensors_) {
    if (!tensors.emplace(stacks.of(key), std::move(tensor)).second)
      throw Error(Fault::kData, "{}: {} is there twice, under two names", where_, key);
  }
  for (std::string& key : order_) key = stacks.of(key);
  name_up_apart(tensors, order_);
  return tensors;
}

}  // namespace piton
