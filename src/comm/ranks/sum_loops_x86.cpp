#include "comm/ranks/vector/sum_loops.h"

namespace piton {
namespace {

bool has_v3() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
}

bool has_v4() {
  return has_v3() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl");
}

}  // namespace

SumLoops widest_sum_loops() {
  if (has_v4()) return sum_v4::reduce;
  return has_v3() ? sum_v3::reduce : sum_v2::reduce;
}

std::vector<SumLoops> sum_loops_here() {
  std::vector<SumLoops> loops = {sum_v2::reduce};
  if (has_v3()) loops.push_back(sum_v3::reduce);
  if (has_v4()) loops.push_back(sum_v4::reduce);
  return loops;
}

}  // namespace piton
