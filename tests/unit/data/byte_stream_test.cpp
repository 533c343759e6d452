// Packed files whose frames say other sizes than they have, in reads of any size.
#include "data/records/byte_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "packing.h"
#include "support/errors.h"
#include "support/temp_folder.h"

namespace piton {
namespace {

std::string unpacked(const std::string& path, std::size_t at_once) {
  const auto stream = open_byte_stream(path);
  std::string all;
  std::vector<char> buffer(at_once);
  while (const std::size_t got = stream->read(buffer)) all.append(buffer.data(), got);
  return all;
}

const std::string kMagic = "\x28\xb5\x2f\xfd";

// A zstd frame (RFC 8878) with one raw block, whose header says `size` bytes.
std::string frame(const std::string& text, char size) {
  const auto block = static_cast<char>(text.size() << 3 | 1);
  return kMagic + std::string{'\x20', size, block, '\0', '\0'} + text;
}

TEST(ByteStream, OfZstdHasAllFramesWhateverTheReads) {
  const TempFolder folder;
  const std::string path = (folder / "x.zst").string();
  const std::string skipped = std::string("\x50\x2a\x4d\x18\x03\0\0\0", 8) + "abc";
  const std::string text(100'000, 'x');
  put_file(path, frame("abc", 3) + frame("", 0) + skipped + packed(".zst", text) + frame("de", 2));
  for (const std::size_t at_once : {1, 2, 61, 1 << 16, 1 << 20})
    EXPECT_EQ(unpacked(path, at_once), "abc" + text + "de") << at_once;
}

TEST(ByteStream, OfZstdRefusesAFrameOfAnotherSizeThanItSays) {
  const TempFolder folder;
  const std::string path = (folder / "x.zst").string();
  const auto refused = [&](const std::string& bytes) {
    put_file(path, bytes);
    for (const std::size_t at_once : {1, 61, 1 << 16}) {
      EXPECT_THAT(message_of(Fault::kData, [&] { unpacked(path, at_once); }),
                  testing::AllOf(testing::HasSubstr(path), testing::HasSubstr("zstd: ")))
          << at_once;
    }
  };
  refused(frame("abc", 5));
  refused(frame("abc", 2));
  // An empty block, and a compressed one of no bytes at the end.
  refused(kMagic + std::string("\x20\x05\0\0\0\x05\0\0", 8));
}

}  // namespace
}  // namespace piton
