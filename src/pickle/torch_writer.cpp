#include "pickle/torch_writer.h"

#include <algorithm>
#include <string>

#include "base/error.h"
#include "pickle/torch_file.h"

namespace piton {
namespace {

constexpr std::string_view kFolder = "archive/";

std::string_view storage_class(std::string_view dtype) {
  if (dtype == "F32") return "FloatStorage";
  if (dtype == "BF16") return "BFloat16Storage";
  if (dtype == "F16") return "HalfStorage";
  if (dtype == "F64") return "DoubleStorage";
  PITON_ASSERT(dtype == "I64", "no storage of {}", dtype);
  return "LongStorage";
}

}  // namespace

void TorchWriter::tensor(std::string_view dtype, std::span<const std::int64_t> shape) {
  std::vector<std::int64_t> strides(shape.size());
  std::int64_t elements = 1;
  for (std::size_t i = shape.size(); i-- > 0;) {
    strides[i] = elements;
    elements *= shape[i];
  }
  global("torch._utils", "_rebuild_tensor_v2");
  begin_tuple();
  begin_tuple();
  text("storage");
  global("torch", storage_class(dtype));
  text(fmt::format("{}", storages_.size()));
  text("cpu");
  integer(elements);
  end_tuple();
  persistent_id();
  integer(0);
  integers(shape);
  integers(strides);
  boolean(false);
  global("collections", "OrderedDict");
  begin_tuple();
  end_tuple();
  call();
  end_tuple();
  call();
  storages_.push_back(elements * torch_width(dtype));
}

void TorchWriter::end_tree() {
  if (tree_ended_) return;
  tree_ended_ = true;
  zip_.add(fmt::format("{}data.pkl", kFolder), finished());
  zip_.add(fmt::format("{}byteorder", kFolder), "little");
  next_storage();
}

// Begins the next storage; ends storages without bytes at once.
void TorchWriter::next_storage() {
  for (; storage_ < storages_.size(); ++storage_) {
    zip_.begin(fmt::format("{}data/{}", kFolder, storage_));
    left_ = storages_[storage_];
    if (left_ > 0) return;
    zip_.end();
  }
}

void TorchWriter::append(std::span<const std::byte> bytes) {
  end_tree();
  while (!bytes.empty()) {
    PITON_ASSERT(storage_ < storages_.size(), "more bytes than tensors");
    const auto count = std::min(bytes.size(), static_cast<std::size_t>(left_));
    zip_.append(bytes.first(count));
    bytes = bytes.subspan(count);
    left_ -= static_cast<std::int64_t>(count);
    if (left_ > 0) continue;
    zip_.end();
    ++storage_;
    next_storage();
  }
}

void TorchWriter::commit() {
  end_tree();
  PITON_ASSERT(storage_ == storages_.size(), "{} of {} tensors were written", storage_,
               storages_.size());
  zip_.add(fmt::format("{}version", kFolder), "3\n");
  zip_.commit();
}

}  // namespace piton
