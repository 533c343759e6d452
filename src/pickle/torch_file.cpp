#include "pickle/torch_file.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/files/lfs_pointer.h"
#include "pickle/pickle.h"
#include "pickle/zip.h"

namespace piton {
namespace {

// Limit for data.pkl: a model of 10,000 tensors has 2 MB.
constexpr std::int64_t kMostPickle = std::int64_t{64} << 20;
// The first pickle of a file that is not an archive: 0x1950a86a20f9469cfc6c, 10 bytes.
constexpr std::string_view kStreamMark("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.",
                                       15);

// The last element of a view, computed without overflow.
std::int64_t last_element(const PickleTensor& tensor, const std::string& where,
                          const std::string& name) {
  std::int64_t last = tensor.offset;
  for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
    if (tensor.shape[i] == 0) return -1;
    std::int64_t reach = 0;
    if (__builtin_mul_overflow(tensor.shape[i] - 1, tensor.strides[i], &reach) ||
        __builtin_add_overflow(last, reach, &last)) {
      throw Error(Fault::kData, "{}: {}: sizes that no memory holds", where, name);
    }
  }
  return last;
}

}  // namespace

std::int64_t torch_width(std::string_view dtype) {
  if (dtype == "F64" || dtype == "I64") return 8;
  if (dtype == "F32" || dtype == "I32") return 4;
  if (dtype == "F16" || dtype == "BF16" || dtype == "I16") return 2;
  if (dtype == "I8" || dtype == "U8" || dtype == "BOOL") return 1;
  return 0;
}

bool TorchTensor::contiguous() const {
  std::int64_t step = 1;
  for (std::size_t i = shape.size(); i-- > 0;) {
    if (shape[i] != 1 && strides[i] != step) return false;
    step *= shape[i];
  }
  return true;
}

TorchFile::TorchFile(const std::filesystem::path& path) : own_(path), part_(*own_) { open(); }

TorchFile::TorchFile(const FilePart& part) : part_(part) { open(); }

void TorchFile::open() {
  refuse_lfs_pointer(part_.file());
  if (is_zip(part_)) {
    open_archive();
  } else {
    open_stream();
  }
}

void TorchFile::open_archive() {
  const std::map<std::string, ZipMember> members = read_zip(part_);
  const auto refuse = [&](const std::string& what) {
    throw Error(Fault::kData, "{}: not a file of torch.save: {}", part_.path().string(), what);
  };
  std::string folder;
  int pickles = 0;
  for (const auto& [name, member] : members) {
    if (name != "data.pkl" && !name.ends_with("/data.pkl")) continue;
    folder = name.substr(0, name.size() - 8);
    if (++pickles > 1) refuse("it has more than one data.pkl");
  }
  const auto pickle = members.find(folder + "data.pkl");
  if (pickle == members.end()) refuse("it has no data.pkl");
  const auto order = members.find(folder + "byteorder");
  if (order != members.end() && read_member(part_, order->second, 64) != "little")
    refuse("its numbers are big-endian");
  document_ = read_pickle(read_member(part_, pickle->second, kMostPickle), part_.path().string());
  const std::string data = folder + "data/";
  for (const auto& [name, member] : members) {
    if (name.starts_with(data)) storages_[name.substr(data.size())] = {member.offset, member.bytes};
  }
}

// A sequence of pickles: mark, version, facts of the machine, the data, a list of keys; then for
// each key the number of elements (int64) and the bytes. The tensors that use a key tell its
// element size.
void TorchFile::open_stream() {
  const std::string where = part_.path().string();
  const auto refuse = [&](const std::string& what) {
    throw Error(Fault::kData, "{}: not a file of torch.save: {}", where, what);
  };
  std::string head(
      static_cast<std::size_t>(std::min<std::int64_t>(part_.size_bytes(), kMostPickle)), '\0');
  part_.read_at(0, std::as_writable_bytes(std::span(head)));
  std::string_view rest = head;
  if (!rest.starts_with(kStreamMark)) refuse("it begins neither as a zip archive nor as a pickle");
  rest.remove_prefix(kStreamMark.size());
  PickleDocument keys;
  for (int i = 0; i < 4; ++i) {
    std::size_t used = 0;
    PickleDocument read = read_pickle(rest, where, &used);
    rest.remove_prefix(used);
    if (i == 2) document_ = std::move(read);
    if (i == 3) keys = std::move(read);
  }
  std::map<std::string, std::int64_t> widths;
  document_.for_each_tensor(
      [&](const PickleTensor& tensor) { widths[tensor.storage] = torch_width(tensor.dtype); });
  auto at = static_cast<std::int64_t>(head.size() - rest.size());
  for (const PickleValue* key : keys.root().items) {
    const auto width = widths.find(key->text);
    if (width == widths.end()) refuse("a storage that no tensor has");
    if (part_.size_bytes() - at < 8) refuse("it ends early");
    std::int64_t elements = 0;
    part_.read_at(at, std::as_writable_bytes(std::span(&elements, 1)));
    at += 8;
    if (elements < 0 || elements > (part_.size_bytes() - at) / width->second)
      refuse("it ends early; is the copy complete?");
    storages_[key->text] = {at, elements * width->second};
    at += elements * width->second;
  }
  if (at != part_.size_bytes()) refuse("bytes follow its last storage");
}

TorchTensor TorchFile::tensor(const PickleValue& value, const std::string& name) const {
  PITON_ASSERT(value.kind == PickleValue::Kind::kTensor, "{} is no tensor", name);
  const PickleTensor& tensor = value.tensor;
  const std::string where = part_.path().string();
  const auto storage = storages_.find(tensor.storage);
  if (storage == storages_.end()) {
    throw Error(Fault::kData, "{}: {}: its storage {} is not in the file; is the copy complete?",
                where, name, tensor.storage);
  }
  const std::int64_t width = torch_width(tensor.dtype);
  const std::int64_t elements = storage->second.bytes / width;
  if (tensor.storage_elements != elements || storage->second.bytes % width != 0) {
    throw Error(Fault::kData, "{}: {}: its storage has {} bytes, wanted {} elements of {}", where,
                name, storage->second.bytes, tensor.storage_elements, tensor.dtype);
  }
  if (last_element(tensor, where, name) >= elements) {
    throw Error(Fault::kData, "{}: {}: reaches beyond its storage of {} elements", where, name,
                elements);
  }
  return {
      .dtype = tensor.dtype,
      .offset = part_.offset() + storage->second.offset + std::min(tensor.offset, elements) * width,
      .shape = tensor.shape,
      .strides = tensor.strides};
}

}  // namespace piton
