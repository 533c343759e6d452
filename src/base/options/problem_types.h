// What a classifier of texts says of each: the values of --problem-type, and of the key
// problem_type in config.json of Transformers.
#pragma once

namespace piton {

inline constexpr const char* kOneOfLabels = "single_label_classification";
inline constexpr const char* kRegression = "regression";  // a number
// Any number of the labels.
inline constexpr const char* kSeveralLabels = "multi_label_classification";

}  // namespace piton
