#include "checkpoint/native_source.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "checkpoint/file_tensor.h"

namespace piton {

namespace fs = std::filesystem;

NativeSource::NativeSource(fs::path folder, Manifest manifest, bool optimizer)
    : folder_(std::move(folder)), manifest_(std::move(manifest)), optimizer_(optimizer) {
  for (std::size_t i = 0; i < manifest_.tensors.size(); ++i) {
    if (has(manifest_.tensors[i])) index_[manifest_.tensors[i].tensor.name] = i;
  }
}

std::vector<CanonicalTensor> NativeSource::tensors(TensorKind kind) const {
  std::vector<CanonicalTensor> result;
  for (const auto& [name, index] : index_) {
    const CanonicalTensor& tensor = manifest_.tensors[index].tensor;
    if (tensor.kind == kind) result.push_back(tensor);
  }
  return result;
}

const RegularFile& NativeSource::open(const std::string& name) {
  return files_.try_emplace(name, folder_ / name).first->second;
}

void NativeSource::read(const std::string& name, const TensorRun& run, DType dtype,
                        std::byte* dst) {
  const std::size_t index = index_.at(name);
  const StoredTensor& one = manifest_.tensors[index];
  std::unique_lock lock(open_or_check_);
  const FileTensor tensor{.file = open(one.file),
                          .offset = one.offset,
                          .dtype = one.tensor.dtype,
                          .shape = one.tensor.shape};
  const bool whole = run.extent == one.tensor.shape && run.size() == run.extent.elements();
  const bool checks = whole && unchecked_.erase(index) > 0;
  lock.unlock();
  if (!checks) return read_run(tensor, run, dtype, dst);
  expect_hash(one, read_whole(tensor, dtype, dst));
}

void NativeSource::check_headers() {
  std::map<std::string, std::map<std::string, const StoredTensor*>> by_file;
  std::set<std::string> wanted;
  for (const StoredTensor& one : manifest_.tensors) {
    by_file[one.file][one.tensor.name] = &one;
    if (has(one)) wanted.insert(one.file);
  }
  for (const auto& [name, tensors] : by_file) {
    std::error_code ignored;
    if (wanted.contains(name) || fs::exists(folder_ / name, ignored)) check_header(name, tensors);
  }
}

void NativeSource::check_header(const std::string& name,
                                const std::map<std::string, const StoredTensor*>& tensors) {
  const std::string where = (folder_ / name).string();
  const auto stored = std::find_if(manifest_.files.begin(), manifest_.files.end(),
                                   [&](const StoredFile& one) { return one.name == name; });
  PITON_ASSERT(stored != manifest_.files.end(), "{} is not listed", name);
  const RegularFile& file = open(name);
  if (file.size_bytes() != stored->bytes) {
    throw Error(Fault::kData, "checkpoint: {}: got {} bytes, wanted {}; is the copy complete?",
                where, file.size_bytes(), stored->bytes);
  }
  if (hash_of_bytes(file, 0, stored->hashed_bytes) != stored->hash) {
    throw Error(Fault::kData, "checkpoint: {}: its header was changed since it was saved", where);
  }
  const SafetensorsHeader header = read_safetensors_header(file);
  const auto differ = [&](const std::string& what) {
    throw Error(Fault::kData, "checkpoint: {}: {}: file and manifest.json say different things",
                where, what);
  };
  if (header.data_begin != stored->hashed_bytes) differ("the length of its header");
  // In both directions: no hash would cover a tensor that only the file has.
  for (const SafetensorsEntry& entry : header.entries) {
    const auto found = tensors.find(entry.name);
    if (found == tensors.end()) differ(entry.name);
    const StoredTensor& one = *found->second;
    const auto sizes = one.tensor.shape.sizes();
    if (header.data_begin + entry.begin != one.offset || entry.bytes() != one.bytes ||
        entry.dtype != safetensors_name(one.tensor.dtype) ||
        !std::equal(sizes.begin(), sizes.end(), entry.shape.begin(), entry.shape.end())) {
      differ(entry.name);
    }
  }
  if (header.entries.size() != tensors.size()) differ("the number of tensors");
}

void NativeSource::check_hash(std::size_t index) {
  const StoredTensor& one = manifest_.tensors[index];
  expect_hash(one, hash_of_bytes(open(one.file), one.offset, one.bytes));
}

void NativeSource::expect_hash(const StoredTensor& one, const std::string& hash) const {
  if (hash == one.hash) return;
  throw Error(
      Fault::kData,
      "checkpoint: {}: {}: its bytes were changed since they were saved: their hash is {}, the "
      "manifest says {}; load an earlier checkpoint",
      (folder_ / one.file).string(), one.tensor.name, hash, one.hash);
}

void NativeSource::share_checks(int rank, int ranks) {
  std::vector<std::size_t> indices;
  std::vector<std::int64_t> sizes;
  for (std::size_t i = 0; i < manifest_.tensors.size(); ++i) {
    if (!has(manifest_.tensors[i])) continue;
    indices.push_back(i);
    sizes.push_back(manifest_.tensors[i].bytes);
  }
  const std::vector<int> workers = spread(sizes, ranks);
  for (std::size_t i = 0; i < indices.size(); ++i) {
    if (workers[i] == rank) unchecked_.insert(indices[i]);
  }
}

void NativeSource::check_rest() {
  for (const std::size_t index : unchecked_) check_hash(index);
  unchecked_.clear();
}

}  // namespace piton
