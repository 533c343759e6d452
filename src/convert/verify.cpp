#include "convert/verify.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <set>

#include "base/error.h"
#include "checkpoint/load_values.h"
#include "checkpoint/values.h"
#include "comm/mesh.h"
#include "convert/layer_walk.h"

namespace piton {
namespace {

constexpr std::int64_t kPrompt = 16;
constexpr std::int64_t kBlock = std::int64_t{1} << 22;  // elements that are compared at a time
// For logits, relative to the largest: above any effect of the order of sums, far below the effect
// of a wrong row.
constexpr double kTolerance = 1e-5;
constexpr std::size_t kMostNamed = 20;

// Values of a source in fp32, after rounding to the types of another source.
class RoundedSource final : public TensorSource {
 public:
  RoundedSource(TensorSource& source, const TensorSource& types) : source_(source) {
    for (const CanonicalTensor& one : types.tensors(TensorKind::kWeight))
      types_[one.name] = one.dtype;
  }

  std::string where() const override { return source_.where(); }
  std::vector<CanonicalTensor> tensors(TensorKind kind) const override {
    return source_.tensors(kind);
  }
  void read(const std::string& name, const TensorRun& run, DType dtype, std::byte* dst) override {
    const DType type = types_.at(name);
    if (type == dtype) return source_.read(name, run, dtype, dst);
    std::vector<std::byte> rounded(
        static_cast<std::size_t>(std::min(kBlock, run.size()) * size_bytes(type)));
    for (TensorRun part = run; part.begin < run.end; part.begin = part.end) {
      part.end = std::min(run.end, part.begin + kBlock);
      source_.read(name, part, type, rounded.data());
      convert_values(rounded.data(), type, dst + (part.begin - run.begin) * size_bytes(dtype),
                     dtype, part.size());
    }
  }

 private:
  TensorSource& source_;
  std::map<std::string, DType> types_;
};

// Compares the result with the source while it is read.
class ComparedSource final : public TensorSource {
 public:
  ComparedSource(TensorSource& result, TensorSource& wanted, TensorSource& exact,
                 VerifyReport& report)
      : result_(result), wanted_(wanted), exact_(exact), report_(report) {}

  std::string where() const override { return result_.where(); }
  std::vector<CanonicalTensor> tensors(TensorKind kind) const override {
    return result_.tensors(kind);
  }
  void read(const std::string& name, const TensorRun& run, DType dtype, std::byte* dst) override {
    PITON_ASSERT(dtype == DType::kF32);
    result_.read(name, run, dtype, dst);
    if (!seen_.insert(name).second) return;  // a table that is also the head
    wanted_values_.resize(static_cast<std::size_t>(std::min(kBlock, run.size())));
    for (TensorRun part = run; part.begin < run.end; part.begin = part.end) {
      part.end = std::min(run.end, part.begin + kBlock);
      wanted_.read(name, part, dtype, reinterpret_cast<std::byte*>(wanted_values_.data()));
      if (!all_finite(part.size())) check_finite(name, part);
      const std::byte* got = dst + (part.begin - run.begin) * size_bytes(dtype);
      const auto bytes = static_cast<std::size_t>(part.size() * size_bytes(dtype));
      if (std::memcmp(got, wanted_values_.data(), bytes) == 0) continue;
      differ(name, part, got);
      break;
    }
    ++report_.tensors;
  }

 private:
  bool all_finite(std::int64_t count) const {
    return std::all_of(wanted_values_.begin(), wanted_values_.begin() + count,
                       [](float value) { return std::isfinite(value); });
  }

  // Values that are not finite, in the source or by rounding.
  void check_finite(const std::string& name, const TensorRun& part) {
    std::vector<float> own(static_cast<std::size_t>(part.size()));
    exact_.read(name, part, DType::kF32, reinterpret_cast<std::byte*>(own.data()));
    for (std::size_t i = 0; i < own.size(); ++i) {
      if (std::isfinite(wanted_values_[i])) continue;
      if (std::isfinite(own[i])) {
        if (!report_.beyond_type.empty()) return;
        report_.beyond_type =
            fmt::format("{}: element {} is {}, which becomes {}", name,
                        part.begin + static_cast<std::int64_t>(i), own[i], wanted_values_[i]);
        return;
      }
      if (report_.not_finite.empty() || report_.not_finite.back() != name)
        report_.not_finite.push_back(name);
    }
  }

  void differ(const std::string& name, const TensorRun& part, const std::byte* got) {
    for (std::int64_t i = 0; i < part.size(); ++i) {
      float value = 0;
      std::memcpy(&value, got + i * 4, 4);
      const float wanted = wanted_values_[static_cast<std::size_t>(i)];
      if (std::memcmp(&value, &wanted, 4) == 0) continue;
      if (report_.differing.size() < kMostNamed) {
        report_.differing.push_back(fmt::format("{}: element {} is {}, the source has {}", name,
                                                part.begin + i, value, wanted));
      }
      return;
    }
  }

  TensorSource& result_;
  TensorSource& wanted_;
  TensorSource& exact_;
  VerifyReport& report_;
  std::vector<float> wanted_values_;
  std::set<std::string> seen_;
};

// Ids spread over the vocabulary, including the first and the last.
std::vector<std::int32_t> make_prompt(const ModelConfig& model) {
  const std::int64_t length = std::min(kPrompt, model.longest_sequence());
  std::vector<std::int32_t> ids;
  for (std::int64_t i = 0; i < length; ++i) {
    const std::int64_t id =
        length == 1 ? 0 : (i * 7 % length) * (model.vocabulary - 1) / (length - 1);
    ids.push_back(static_cast<std::int32_t>(id));
  }
  return ids;
}

void check_same_tensors(const ModelSide& source, const ModelSide& result) {
  check_tensors(result.source, source.source.tensors(TensorKind::kWeight), TensorKind::kWeight);
  if (source.model.layers != result.model.layers || source.model.hidden != result.model.hidden ||
      source.model.vocabulary != result.model.vocabulary) {
    throw Error(Fault::kData, "{}: describes another model than {}", result.source.where(),
                source.source.where());
  }
}

double log_of_sum(std::span<const float> row) {
  const double top = *std::ranges::max_element(row);
  double sum = 0;
  for (const float x : row) sum += std::exp(x - top);
  return top + std::log(sum);
}

void compare_logits(const std::vector<float>& a, const std::vector<float>& b,
                    VerifyReport& report) {
  PITON_ASSERT(a.size() == b.size(), "{} and {} logits", a.size(), b.size());
  const std::size_t columns = a.size() / static_cast<std::size_t>(report.tokens);
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::memcmp(&a[i], &b[i], sizeof(float)) == 0) continue;
    const double difference = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    if (std::isnan(difference)) report.largest_difference = difference;
    report.largest_difference = std::max(report.largest_difference, difference);
  }
  for (const float x : a)
    report.largest_logit = std::max(report.largest_logit, std::abs(double{x}));
  for (std::size_t row = 0; row < a.size(); row += columns) {
    const std::span<const float> p(a.data() + row, columns);
    const std::span<const float> q(b.data() + row, columns);
    const double p_sum = log_of_sum(p);
    const double q_sum = log_of_sum(q);
    for (std::size_t i = 0; i < columns; ++i) {
      const double log_p = p[i] - p_sum;
      report.divergence += std::exp(log_p) * (log_p - (q[i] - q_sum));
    }
  }
  report.divergence /= static_cast<double>(report.tokens);
}

// The prompt through both, chunk by chunk.
void walk_both(const Machine& machine, const ModelSide& source, const ModelSide& result,
               Progress& progress, VerifyReport& report) {
  const std::vector<std::int32_t> prompt = make_prompt(source.model);
  report.tokens = std::ssize(prompt);
  Mesh mesh(machine.world, MeshSizes{});
  LayerWalk theirs(machine, mesh, source.model, {prompt});
  LayerWalk ours(machine, mesh, result.model, {prompt});
  ThrottledProgress shown(progress, ours.chunks());
  const auto what = [] { return std::string("comparing with the source"); };
  shown.at(0, what);
  for (int chunk = 0; chunk < ours.chunks(); ++chunk) {
    theirs.run(chunk, source.source);
    ours.run(chunk, result.source);
    shown.at(chunk + 1, what);
  }
  progress.finish();
  compare_logits(theirs.output(0), ours.output(0), report);
}

}  // namespace

bool VerifyReport::equal() const {
  return differing.empty() && largest_difference <= kTolerance * std::max(largest_logit, 1.0);
}

VerifyReport verify(const Machine& machine, const ModelSide& source, const ModelSide& result,
                    Progress& progress, TensorSource* exact) {
  check_same_tensors(source, result);
  VerifyReport report;
  RoundedSource wanted(source.source, result.source);
  ComparedSource compared(result.source, wanted, exact == nullptr ? source.source : *exact, report);
  walk_both(machine, {wanted, source.model}, {compared, result.model}, progress, report);
  return report;
}

VerifyReport compare_outputs(const Machine& machine, const ModelSide& source,
                             const ModelSide& result, Progress& progress) {
  check_same_tensors(source, result);
  VerifyReport report;
  walk_both(machine, source, result, progress, report);
  return report;
}

}  // namespace piton
