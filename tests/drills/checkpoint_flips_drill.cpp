// A thousand flipped bits in all files of a checkpoint and in its tracker file: each is detected,
// and the message names the file, and the tensor if the bit is in one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "checkpoint/store.h"
#include "drills/drill.h"
#include "support/errors.h"
#include "support/temp_folder.h"
#include "unit/checkpoint/small_model.h"

namespace piton {
namespace {

namespace fs = std::filesystem;

void flip(const fs::path& file, std::int64_t bit) {
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekg(bit / 8);
  const int byte = stream.get();
  stream.seekp(bit / 8);
  stream.put(static_cast<char>(byte ^ (1 << (bit % 8))));
}

// The tensor that has this byte; "" for a byte of a header or of another file.
std::string tensor_at(const Manifest& manifest, const fs::path& file, std::int64_t byte) {
  for (const StoredTensor& one : manifest.tensors) {
    if (one.file == file.filename() && byte >= one.offset && byte < one.offset + one.bytes) {
      return one.tensor.name;
    }
  }
  return "";
}

TEST(FlippedBits, OfEveryFileAreNoticedAndNamed) {
  const TempFolder dir;
  test::run_ranks(1, [&](World& world) {
    test::SmallRun run(world, {});
    run.fill(10);
    save_checkpoint(run.stored(), run.context(),
                    {dir.path(), test::state_of(7), "rotary-base = 10000.0\n"});
    std::vector<fs::path> files{dir / kTrackerName};
    for (const auto& entry : fs::directory_iterator(dir / "iter_0000007")) {
      files.push_back(entry.path());
    }
    ASSERT_GE(files.size(), 6U);
    const Manifest manifest = read_manifest(dir / "iter_0000007");
    std::int64_t in_tensors = 0;
    const std::int64_t end_round = drill::end_round(200, 1000);
    for (std::int64_t round = drill::first_round(); round < end_round; ++round) {
      drill::Draw draw(drill::seed(round));
      // Each file as often as the others, however small it is.
      const fs::path& file = files[static_cast<std::size_t>(round) % files.size()];
      const std::int64_t bit = draw.below(8 * static_cast<std::int64_t>(fs::file_size(file)));
      flip(file, bit);
      const std::string tensor = tensor_at(manifest, file, bit / 8);
      if (!tensor.empty()) ++in_tensors;
      EXPECT_THAT(
          message_of(
              Fault::kData,
              [&] { load_checkpoint(find_checkpoint(dir.path()), run.stored(), run.context()); }),
          testing::AllOf(testing::HasSubstr(file.filename().string()),
                         testing::HasSubstr(tensor.empty() ? "" : ": " + tensor + ": ")))
          << "seed " << drill::seed(round) << ": bit " << bit << " of " << file;
      flip(file, bit);
    }
    EXPECT_GE(5 * in_tensors, end_round - drill::first_round()) << "most bytes are of tensors";
    load_checkpoint(find_checkpoint(dir.path()), run.stored(), run.context());
    EXPECT_EQ(run.differences(10), 0);
  });
}

}  // namespace
}  // namespace piton
