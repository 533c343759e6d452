#include <gtest/gtest.h>

#include <filesystem>

#include "data/samples/data_paths.h"

namespace piton {
namespace {

using Words = std::vector<std::string>;

TEST(RelativePathsOfData, AreAbsoluteAndWeightsStay) {
  const std::string here = std::filesystem::current_path().string() + "/";
  DataOptions options;
  options.data_path = {"0.3", "a", "0.7", "/b/../c"};
  options.train_data_path = {"a", "x/./y"};
  options.valid_data_path = {"7", "a", "b"};  // an odd number of words: no weights
  options.train_weighted_split_paths = {"TRAIN: 0.3 0:0.5 a b,0.7 0.5:1\t/c , 1 0:1 d"};
  options.valid_weighted_split_paths = {"malformed", "V: 1 a"};
  options.data_cache_path = "cache";
  const DataOptions absolute = with_absolute_paths(options);
  EXPECT_EQ(absolute.data_path, (Words{"0.3", here + "a", "0.7", "/c"}));
  EXPECT_EQ(absolute.train_data_path, (Words{here + "a", here + "x/y"}));
  EXPECT_EQ(absolute.valid_data_path, (Words{here + "7", here + "a", here + "b"}));
  EXPECT_EQ(absolute.train_weighted_split_paths,
            (Words{"TRAIN: 0.3 0:0.5 " + here + "a b, 0.7 0.5:1\t/c, 1 0:1 " + here + "d"}));
  EXPECT_EQ(absolute.valid_weighted_split_paths, options.valid_weighted_split_paths);
  EXPECT_EQ(absolute.data_cache_path, here + "cache");
  EXPECT_EQ(with_absolute_paths(absolute).data_path, absolute.data_path);
}

}  // namespace
}  // namespace piton
