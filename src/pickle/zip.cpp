#include "pickle/zip.h"

#include <algorithm>
#include <cstring>
#include <initializer_list>

#include "base/error.h"
#include "pickle/crc32.h"

namespace piton {
namespace {

constexpr std::uint32_t kLocalMark = 0x04034b50;
constexpr std::uint32_t kDirectoryMark = 0x02014b50;
constexpr std::uint32_t kEndMark = 0x06054b50;
constexpr std::uint32_t kEnd64Mark = 0x06064b50;
constexpr std::uint32_t kLocator64Mark = 0x07064b50;
constexpr std::int64_t kLocalBytes = 30;
constexpr std::int64_t kDirectoryBytes = 46;
constexpr std::int64_t kEndBytes = 22;
constexpr std::int64_t kEnd64Bytes = 56;
constexpr std::int64_t kLocator64Bytes = 20;
constexpr std::int64_t kMostComment = 65535;
constexpr std::int64_t kMostDirectory = std::int64_t{256} << 20;
constexpr std::uint16_t kWide = 0x0001;     // the extra field of 64-bit sizes
constexpr std::uint16_t kPadding = 0x4246;  // "FB": PyTorch's, ignored by all readers
constexpr std::uint32_t kAll32 = 0xFFFFFFFF;
constexpr std::uint16_t kAll16 = 0xFFFF;
constexpr std::int64_t kAlignment = 64;

[[noreturn]] void refuse(const FilePart& file, const std::string& what) {
  throw Error(Fault::kData, "{}: not a valid zip archive: {}; is the copy complete?",
              file.path().string(), what);
}

template <typename T>
T number(std::string_view bytes, std::size_t at) {
  PITON_ASSERT(at <= bytes.size() && sizeof(T) <= bytes.size() - at);
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof(T));
  return value;
}

std::string read(const FilePart& file, std::int64_t offset, std::int64_t bytes, const char* what) {
  if (offset < 0 || bytes < 0 || bytes > file.size_bytes() || offset > file.size_bytes() - bytes) {
    refuse(file, fmt::format("{} of {} bytes at byte {}, and the file has {}", what, bytes, offset,
                             file.size_bytes()));
  }
  std::string text(static_cast<std::size_t>(bytes), '\0');
  file.read_at(offset, std::as_writable_bytes(std::span(text)));
  return text;
}

struct Directory {
  std::int64_t offset = 0;
  std::int64_t bytes = 0;
  std::int64_t members = 0;
};

// Checks a 64-bit length against the size of the file, which no part can exceed.
std::int64_t length(const FilePart& file, std::uint64_t value, const char* what) {
  if (value > static_cast<std::uint64_t>(file.size_bytes()))
    refuse(file, fmt::format("{} {}, and the file has {} bytes", what, value, file.size_bytes()));
  return static_cast<std::int64_t>(value);
}

bool has_mark(const FilePart& file, std::int64_t at, std::uint32_t mark) {
  return at >= 0 && number<std::uint32_t>(read(file, at, sizeof mark, "mark"), 0) == mark;
}

Directory wide_directory(const FilePart& file, std::int64_t locator_at) {
  const std::string locator = read(file, locator_at, kLocator64Bytes, "locator");
  PITON_ASSERT(number<std::uint32_t>(locator, 0) == kLocator64Mark);
  const std::int64_t at = length(file, number<std::uint64_t>(locator, 8), "an end record at");
  const std::string end = read(file, at, kEnd64Bytes, "end record");
  if (number<std::uint32_t>(end, 0) != kEnd64Mark) refuse(file, "no end record of 64 bits");
  if (number<std::uint64_t>(end, 24) != number<std::uint64_t>(end, 32))
    refuse(file, "it has parts of another archive");
  return {.offset = length(file, number<std::uint64_t>(end, 48), "a directory at"),
          .bytes = length(file, number<std::uint64_t>(end, 40), "a directory of"),
          .members = length(file, number<std::uint64_t>(end, 32), "members:")};
}

Directory find_directory(const FilePart& file) {
  const std::int64_t tail = std::min(file.size_bytes(), kEndBytes + kMostComment);
  const std::string end = read(file, file.size_bytes() - tail, tail, "end");
  // Take the last record whose comment ends with the file.
  for (std::int64_t at = tail - kEndBytes; at >= 0; --at) {
    const auto from = static_cast<std::size_t>(at);
    if (number<std::uint32_t>(end, from) != kEndMark) continue;
    if (number<std::uint16_t>(end, from + 20) != tail - at - kEndBytes) continue;
    const Directory narrow{.offset = number<std::uint32_t>(end, from + 16),
                           .bytes = number<std::uint32_t>(end, from + 12),
                           .members = number<std::uint16_t>(end, from + 10)};
    const std::int64_t locator_at = file.size_bytes() - tail + at - kLocator64Bytes;
    if (!has_mark(file, locator_at, kLocator64Mark)) {
      if (narrow.offset == kAll32 || narrow.bytes == kAll32 || narrow.members == kAll16)
        refuse(file, "sizes of 64 bits without their record");
      return narrow;
    }
    const Directory wide = wide_directory(file, locator_at);
    const auto agree = [](std::int64_t one, std::int64_t other, std::int64_t all) {
      return one == all || one == other;
    };
    if (!agree(narrow.offset, wide.offset, kAll32) || !agree(narrow.bytes, wide.bytes, kAll32) ||
        !agree(narrow.members, wide.members, kAll16)) {
      refuse(file, "its end records of 64 bits and of 32 bits differ");
    }
    return wide;
  }
  refuse(file, "it has no end record");
}

// The extra field of 64-bit sizes; "" if there is none. Readers differ in which of two they take.
std::string_view wide_sizes(const FilePart& file, const std::string& member,
                            std::string_view extra) {
  std::optional<std::string_view> found;
  while (extra.size() >= 4) {
    const auto id = number<std::uint16_t>(extra, 0);
    const std::size_t size = number<std::uint16_t>(extra, 2);
    if (extra.size() - 4 < size) break;
    if (id == kWide && found) refuse(file, member + " has its sizes of 64 bits twice");
    if (id == kWide) found = extra.substr(4, size);
    extra.remove_prefix(4 + size);
  }
  return found.value_or(std::string_view());
}

// The values of 32-bit fields, of which those that do not suffice (all bits set) are in `wide`, in
// this order. Some writers put all of them there; then those of 32 bits have to be the same.
// Nullopt if the two contradict each other.
std::optional<std::vector<std::uint64_t>> joined_sizes(std::initializer_list<std::uint32_t> narrow,
                                                       std::string_view wide) {
  const auto missing = static_cast<std::size_t>(std::ranges::count(narrow, kAll32));
  const std::size_t there = wide.size() / 8;  // after them there may be a disk number of 4 bytes
  const bool all = there > missing;
  if (there < missing || (all && there != narrow.size())) return std::nullopt;
  std::vector<std::uint64_t> sizes;
  for (const std::uint32_t value : narrow) {
    if (!all && value != kAll32) {
      sizes.push_back(value);
      continue;
    }
    sizes.push_back(number<std::uint64_t>(wide, 0));
    wide.remove_prefix(8);
    if (value != kAll32 && value != sizes.back()) return std::nullopt;
  }
  return sizes;
}

// Removes the first directory record from `records` and returns its member.
ZipMember next_member(const FilePart& file, std::string_view& records, const Directory& directory) {
  if (records.size() < kDirectoryBytes || number<std::uint32_t>(records, 0) != kDirectoryMark)
    refuse(file, "its directory ends early");
  const std::size_t name_bytes = number<std::uint16_t>(records, 28);
  const std::size_t extra_bytes = number<std::uint16_t>(records, 30);
  const std::size_t all =
      kDirectoryBytes + name_bytes + extra_bytes + number<std::uint16_t>(records, 32);
  if (records.size() < all) refuse(file, "its directory ends early");
  ZipMember member{.name = std::string(records.substr(kDirectoryBytes, name_bytes)),
                   .crc = number<std::uint32_t>(records, 16)};
  if ((number<std::uint16_t>(records, 8) & 1) != 0) refuse(file, member.name + " is encrypted");
  if (number<std::uint16_t>(records, 10) != 0)
    refuse(file, member.name + " is compressed, wanted members that are stored");
  const auto sizes = joined_sizes(
      {number<std::uint32_t>(records, 24), number<std::uint32_t>(records, 20),
       number<std::uint32_t>(records, 42)},
      wide_sizes(file, member.name, records.substr(kDirectoryBytes + name_bytes, extra_bytes)));
  if (!sizes) refuse(file, member.name + ": its sizes of 64 bits and of 32 bits differ");
  const std::uint64_t size = (*sizes)[0], stored = (*sizes)[1], header = (*sizes)[2];
  records.remove_prefix(all);
  if (size != stored)
    refuse(file, fmt::format("{} is of {} bytes and of {}", member.name, size, stored));
  member.bytes = length(file, size, "a member of");
  const std::int64_t at = length(file, header, "a member at");

  const std::string local = read(file, at, kLocalBytes, "member");
  if (number<std::uint32_t>(local, 0) != kLocalMark)
    refuse(file, member.name + " is not where the directory says");
  const std::int64_t local_name = number<std::uint16_t>(local, 26);
  const std::int64_t local_extra = number<std::uint16_t>(local, 28);
  const std::string rest = read(file, at + kLocalBytes, local_name + local_extra, "member");
  const std::string_view shown =
      std::string_view(rest).substr(0, static_cast<std::size_t>(local_name));
  if (shown != member.name) refuse(file, member.name + " has another name where it is");
  const bool sizes_follow = (number<std::uint16_t>(local, 6) & 8) != 0;  // zeros are here then
  const auto here =
      joined_sizes({number<std::uint32_t>(local, 22), number<std::uint32_t>(local, 18)},
                   wide_sizes(file, member.name, std::string_view(rest).substr(shown.size())));
  const auto fits = [&](std::uint64_t one) { return one == size || (sizes_follow && one == 0); };
  if (number<std::uint16_t>(local, 8) != 0 || !here || !fits((*here)[0]) || !fits((*here)[1]))
    refuse(file, member.name + " has another size where it is");
  member.offset = at + kLocalBytes + local_name + local_extra;
  if (member.offset > directory.offset || member.bytes > directory.offset - member.offset)
    refuse(file, member.name + " reaches into the directory");
  return member;
}

// PyTorch's archives have no overlaps; overlapping members would be read many times.
void check_overlaps(const FilePart& file, const std::map<std::string, ZipMember>& members) {
  std::vector<const ZipMember*> by_place;
  for (const auto& [name, member] : members) by_place.push_back(&member);
  std::ranges::sort(by_place, {}, &ZipMember::offset);
  for (std::size_t i = 1; i < by_place.size(); ++i) {
    if (by_place[i]->offset < by_place[i - 1]->offset + by_place[i - 1]->bytes) {
      refuse(file, fmt::format("{} reaches into {}", by_place[i - 1]->name, by_place[i]->name));
    }
  }
}

template <typename T>
void put(std::string& text, T value) {
  text.append(reinterpret_cast<const char*>(&value), sizeof(T));
}

// The common part of local header and directory record: version to CRC.
void put_common(std::string& text, std::uint32_t crc) {
  put<std::uint16_t>(text, 45);          // version: sizes of 64 bits
  put<std::uint16_t>(text, 1 << 11);     // names are UTF-8
  put<std::uint16_t>(text, 0);           // stored
  put<std::uint32_t>(text, 0x00210000);  // 1980-01-01: the same bytes every time
  put<std::uint32_t>(text, crc);
}

}  // namespace

bool is_zip(const FilePart& file) {
  if (file.size_bytes() < kEndBytes) return false;
  const std::string mark = read(file, 0, 4, "mark");
  return number<std::uint32_t>(mark, 0) == kLocalMark || number<std::uint32_t>(mark, 0) == kEndMark;
}

std::map<std::string, ZipMember> read_zip(const FilePart& file) {
  const Directory directory = find_directory(file);
  if (directory.bytes > kMostDirectory) {
    refuse(file, fmt::format("a directory of {} bytes, wanted at most {}", directory.bytes,
                             kMostDirectory));
  }
  const std::string records = read(file, directory.offset, directory.bytes, "directory");
  std::string_view rest = records;
  std::map<std::string, ZipMember> members;
  for (std::int64_t i = 0; i < directory.members; ++i) {
    ZipMember member = next_member(file, rest, directory);
    const std::string name = member.name;
    if (!members.emplace(name, std::move(member)).second) refuse(file, name + " is there twice");
  }
  if (!rest.empty()) refuse(file, "its directory has more than its members");
  check_overlaps(file, members);
  return members;
}

std::string read_member(const FilePart& file, const ZipMember& member, std::int64_t limit_bytes) {
  if (member.bytes > limit_bytes) {
    refuse(file, fmt::format("{} is of {} bytes, wanted at most {}", member.name, member.bytes,
                             limit_bytes));
  }
  std::string bytes = read(file, member.offset, member.bytes, "member");
  if (crc32(0, std::as_bytes(std::span(bytes))) != member.crc)
    refuse(file, member.name + " was changed: its CRC is another");
  return bytes;
}

// Sizes are in an extra field of 64 bits, written at the end; another extra field pads.
void ZipWriter::begin(const std::string& name) {
  const std::int64_t at = size_bytes();
  members_.push_back({.member = {.name = name}, .header = at});
  std::string header;
  put(header, kLocalMark);
  put_common(header, 0);
  put(header, kAll32);
  put(header, kAll32);
  put(header, static_cast<std::uint16_t>(name.size()));
  const auto plain = at + kLocalBytes + static_cast<std::int64_t>(name.size()) + 20 + 4;
  const auto padding = static_cast<std::uint16_t>((kAlignment - plain % kAlignment) % kAlignment);
  put(header, static_cast<std::uint16_t>(20 + 4 + padding));
  header += name;
  put(header, kWide);
  put<std::uint16_t>(header, 16);
  header.append(16, '\0');
  put(header, kPadding);
  put(header, padding);
  header.append(padding, 'Z');
  file_.write(header);
  members_.back().member.offset = size_bytes();
}

void ZipWriter::append(std::span<const std::byte> bytes) {
  ZipMember& member = members_.back().member;
  member.crc = crc32(member.crc, bytes);
  file_.write(bytes);
}

void ZipWriter::end() {
  Written& written = members_.back();
  ZipMember& member = written.member;
  member.bytes = size_bytes() - member.offset;
  std::string crc;
  put(crc, member.crc);
  file_.write_at(start_ + written.header + 14, std::as_bytes(std::span(crc)));
  std::string sizes;
  put(sizes, member.bytes);
  put(sizes, member.bytes);
  file_.write_at(
      start_ + written.header + kLocalBytes + static_cast<std::int64_t>(member.name.size()) + 4,
      std::as_bytes(std::span(sizes)));
}

void ZipWriter::add(const std::string& name, std::string_view text) {
  begin(name);
  append(std::as_bytes(std::span(text.data(), text.size())));
  end();
}

void ZipWriter::commit() {
  const std::int64_t begin = size_bytes();
  std::string directory;
  for (const Written& written : members_) {
    const ZipMember& member = written.member;
    put(directory, kDirectoryMark);
    put<std::uint16_t>(directory, 45);
    put_common(directory, member.crc);
    put(directory, kAll32);
    put(directory, kAll32);
    put(directory, static_cast<std::uint16_t>(member.name.size()));
    put<std::uint16_t>(directory, 28);  // of the extra field
    put<std::uint16_t>(directory, 0);   // comment
    put<std::uint16_t>(directory, 0);   // disk
    put<std::uint16_t>(directory, 0);   // attributes
    put<std::uint32_t>(directory, 0);
    put(directory, kAll32);
    directory += member.name;
    put(directory, kWide);
    put<std::uint16_t>(directory, 24);
    put(directory, member.bytes);
    put(directory, member.bytes);
    put(directory, written.header);
  }
  const auto bytes = static_cast<std::int64_t>(directory.size());
  const auto count = static_cast<std::int64_t>(members_.size());
  put(directory, kEnd64Mark);
  put<std::int64_t>(directory, kEnd64Bytes - 12);
  put<std::uint16_t>(directory, 45);
  put<std::uint16_t>(directory, 45);
  put<std::uint32_t>(directory, 0);
  put<std::uint32_t>(directory, 0);
  put(directory, count);
  put(directory, count);
  put(directory, bytes);
  put(directory, begin);
  put(directory, kLocator64Mark);
  put<std::uint32_t>(directory, 0);
  put(directory, begin + bytes);
  put<std::uint32_t>(directory, 1);
  put(directory, kEndMark);
  put<std::uint32_t>(directory, 0);
  put<std::uint16_t>(directory, 0xFFFF);
  put<std::uint16_t>(directory, 0xFFFF);
  put(directory, kAll32);
  put(directory, kAll32);
  put<std::uint16_t>(directory, 0);
  file_.write(directory);
  if (own_) own_->commit();
}

}  // namespace piton
