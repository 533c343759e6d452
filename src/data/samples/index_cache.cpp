#include "data/samples/index_cache.h"

#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/files/files.h"
#include "base/files/regular_file.h"
#include "base/hash.h"

namespace piton {
namespace {

constexpr std::string_view kMagic = "PITONIDX";

struct Header {
  char magic[8];
  std::uint64_t version;
  char corpus[32];
  char request[32];
  std::int64_t epochs;
  std::int64_t last_apart;
  std::int64_t order;
  std::int64_t samples;
};
static_assert(sizeof(Header) == 112);  // a multiple of 8: the arrays after it are aligned

std::string hex_of(std::string_view text) {
  StreamHash hash;
  hash.add(std::as_bytes(std::span(text)));
  return hash.hex();
}

std::string description(const GptRequest& r) {
  return fmt::format("{} {} {} {} {} {}", r.first, r.end, r.sequence, r.samples.value_or(-1),
                     r.epochs.value_or(-1), r.seed);
}

// Empty if the file does not exist, or belongs to another corpus or request.
std::optional<GptIndex> stored_index(const std::filesystem::path& path, const std::string& corpus,
                                     const std::string& request) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return {};
  auto file = std::make_shared<const RegularFile>(path);
  Header header;
  const std::int64_t bytes = file->size_bytes();
  if (bytes < static_cast<std::int64_t>(sizeof header)) return {};
  file->read_at(0, std::as_writable_bytes(std::span(&header, 1)));
  if (std::string_view(header.magic, 8) != kMagic || header.version != 1 ||
      std::string_view(header.corpus, 32) != corpus ||
      std::string_view(header.request, 32) != request || header.order < 0 || header.samples < 0 ||
      header.order > bytes || header.samples > bytes) {
    return {};
  }
  GptIndex index;
  index.epochs = header.epochs;
  index.last_apart = header.last_apart != 0;
  std::int64_t at = sizeof header;
  const auto take = [&]<typename T>(StoredList<T>& list, std::int64_t count) {
    list = StoredList<T>(file, at, static_cast<std::size_t>(count));
    at += count * static_cast<std::int64_t>(sizeof(T));
  };
  take(index.row_at, header.samples + 1);
  take(index.shuffle, header.samples);
  take(index.row_from, header.samples + 1);
  take(index.order, header.order);
  if (at != bytes) return {};
  return index;
}

void store_index(const GptIndex& index, const std::filesystem::path& path,
                 const std::string& corpus, const std::string& request) {
  Header header{};
  std::memcpy(header.magic, kMagic.data(), 8);
  header.version = 1;
  std::memcpy(header.corpus, corpus.data(), 32);
  std::memcpy(header.request, request.data(), 32);
  header.epochs = index.epochs;
  header.last_apart = index.last_apart ? 1 : 0;
  header.order = static_cast<std::int64_t>(index.order.size());
  header.samples = static_cast<std::int64_t>(index.shuffle.size());
  AtomicFile file(path);
  file.write(std::as_bytes(std::span(&header, 1)));
  file.write(std::as_bytes(index.row_at.memory()));
  file.write(std::as_bytes(index.shuffle.memory()));
  file.write(std::as_bytes(index.row_from.memory()));
  file.write(std::as_bytes(index.order.memory()));
  file.commit();
}

}  // namespace

std::shared_ptr<const IndexedDataset> open_corpus(
    const std::string& prefix, const std::optional<std::filesystem::path>& cache) {
  if (!cache) return std::make_shared<const IndexedDataset>(IndexedDataset::open(prefix));
  auto corpus = std::make_shared<const IndexedDataset>(
      IndexedDataset::open(prefix, IndexedDataset::Check::kHeader));
  const auto mark = *cache / (corpus->fingerprint() + ".checked");
  std::error_code ignored;
  if (std::filesystem::exists(mark, ignored)) return corpus;
  corpus->check_arrays();
  try {
    write_text_file(mark, "");
  } catch (const Error&) {
    // A read-only cache only means that the check is repeated next time.
  }
  return corpus;
}

GptIndex cached_gpt_index(const TokenSequences& corpus, const GptRequest& request,
                          const std::filesystem::path& cache) {
  const std::string corpus_hash = corpus.fingerprint();
  const std::string request_hash = hex_of(description(request));
  const auto path = cache / (hex_of(corpus_hash + request_hash) + ".samples");
  if (auto index = stored_index(path, corpus_hash, request_hash)) return *std::move(index);
  GptIndex index = build_gpt_index(corpus, request);
  try {
    store_index(index, path, corpus_hash, request_hash);
    if (auto stored = stored_index(path, corpus_hash, request_hash)) return *std::move(stored);
  } catch (const Error&) {
    // With a read-only cache, the lists are built again next time.
  }
  return index;
}

}  // namespace piton
