#include "ops/tape.h"

#include <utility>

namespace piton {
namespace {

using ByteRange = std::pair<std::int64_t, std::int64_t>;

class ResidentTensor final : public KeptTensor {
 public:
  explicit ResidentTensor(Tensor tensor) : tensor_(std::move(tensor)) {}
  Tensor get() override { return tensor_; }

 private:
  Tensor tensor_;
};

// From the first to the last element, gaps included.
ByteRange extent(const Tensor& tensor) {
  const std::int64_t begin = tensor.raw() - tensor.storage()->data();
  if (tensor.elements() == 0) return {begin, begin};
  std::int64_t last = 0;
  for (int dim = 0; dim < tensor.ndim(); ++dim) last += (tensor.dim(dim) - 1) * tensor.stride(dim);
  return {begin, begin + (last + 1) * size_bytes(tensor.dtype())};
}

}  // namespace

namespace {

// `x`, or a contiguous copy of it: the rows of a part have gaps between them.
Tensor without_gaps(const Context& context, const Tensor& x) {
  if (x.contiguous()) return x;
  Tensor copy = context.activation(x.dtype(), x.shape());
  context.kernels.run(Copy{.dst = copy, .src = x}, context.stream);
  return copy;
}

}  // namespace

bool Backward::runs_jobs_at_once() const { return tape_.mode_ == Tape::Mode::kWhole; }

Tensor Backward::take(std::int64_t id) {
  if (id < 0) return {};
  Tape::Gradient gradient = std::exchange(tape_.gradients_[id], {});
  context_.stream.wait(gradient.ready);
  return gradient.tensor;
}

void Backward::give(std::int64_t id, Tensor gradient, Event ready) {
  if (id < 0) return;
  Tape::Gradient& known = tape_.gradients_[id];
  if (!known.tensor.defined()) {
    known.tensor = std::move(gradient);
    known.ready = std::move(ready);
    return;
  }
  context_.stream.wait(known.ready);
  context_.stream.wait(ready);
  // Adds in place only if nothing else (another value, a queued weight job) uses the memory.
  bool own = known.tensor.storage().use_count() == 1;
  if (!known.tensor.contiguous()) {
    known.tensor = without_gaps(context_, known.tensor);
    own = true;
  }
  const Shape shape = known.tensor.shape();
  Tensor sum = own ? known.tensor : context_.activation(known.tensor.dtype(), shape);
  context_.kernels.run(
      Add{.y = sum, .a = known.tensor, .b = without_gaps(context_, gradient).reshape(shape)},
      context_.stream);
  known.tensor = std::move(sum);
  known.ready = {};
}

Tensor Backward::place(std::int64_t id, DType dtype, const Shape& shape) {
  if (id >= 0) {
    const Tape::GradientPlace place = std::exchange(tape_.gradients_[id].place, {});
    if (place) return place(context_).reshape(shape);
  }
  return context_.activation(dtype, shape);
}

void Backward::defer(std::function<void(Context&)> job) { tape_.jobs_.push_back(std::move(job)); }

void Backward::adopt_jobs(Tape& replayed) {
  for (auto& job : replayed.jobs_) tape_.jobs_.push_back(std::move(job));
  replayed.jobs_.clear();
}

Value Tape::leaf(Tensor tensor) { return output(std::move(tensor)); }

Value Tape::output(Tensor tensor) {
  gradients_.emplace_back();
  return {std::move(tensor), static_cast<std::int64_t>(gradients_.size()) - 1};
}

Value Tape::part(Tensor tensor, GradientPlace place) {
  Value value = output(std::move(tensor));
  gradients_.back().place = std::move(place);
  return value;
}

Value Tape::in_place_of(const Value& source, Tensor tensor) {
  GradientPlace place;
  if (source.wants_gradient()) place = gradients_[source.id].place;
  return part(std::move(tensor), std::move(place));
}

void Tape::record(std::function<void(Backward&)> node) { nodes_.push_back(std::move(node)); }

void Tape::provide(const Tensor& tensor, std::shared_ptr<KeptTensor> kept) {
  std::erase_if(provided_, [](const Provided& one) { return one.storage.expired(); });
  provided_.push_back({std::move(kept), tensor.storage(), tensor.raw(), tensor.shape()});
}

Kept Tape::keep(const Tensor& tensor) {
  if (!tensor.defined()) return {};
  for (const Provided& one : provided_) {
    if (one.storage.lock() == tensor.storage() && one.first == tensor.raw() &&
        one.shape == tensor.shape()) {
      return Kept(one.kept);
    }
  }
  std::shared_ptr<KeptTensor> kept =
      keeper_ != nullptr ? keeper_->keep(tensor) : std::make_shared<ResidentTensor>(tensor);
  kept_.push_back({kept, tensor.storage(), extent(tensor)});
  return Kept(std::move(kept));
}

void Tape::overwrite(const Tensor& tensor) {
  std::erase_if(kept_, [](const InPlace& one) { return one.kept.expired(); });
  const ByteRange written = extent(tensor);
  for (const InPlace& one : kept_) {
    const bool overlaps = one.storage.lock() == tensor.storage() &&
                          one.bytes.first < written.second && written.first < one.bytes.second;
    PITON_ASSERT(!overlaps, "an op writes to {} in place, which another op keeps for its backward",
                 to_string(tensor));
  }
}

void Tape::seed(const Value& value, Tensor gradient) {
  PITON_ASSERT(value.wants_gradient(), "the value is not on this tape");
  gradients_[value.id].tensor = std::move(gradient);
}

void Tape::backward(Context context, Mode mode) {
  context.tape = nullptr;
  mode_ = mode;
  provided_.clear();
  while (!nodes_.empty()) {
    std::function<void(Backward&)> node = std::move(nodes_.back());
    nodes_.pop_back();
    Backward backward(context, *this);
    node(backward);
    node = nullptr;  // frees what the node kept, before its weight jobs allocate workspace
    if (mode == Mode::kWhole) run_weight_jobs(context);
  }
}

void Tape::run_weight_jobs(Context context) {
  context.tape = nullptr;
  auto jobs = std::move(jobs_);
  jobs_.clear();
  for (auto& job : jobs) {
    job(context);
    job = nullptr;
  }
}

Tensor Tape::take_gradient(const Value& value, const Context& context) {
  PITON_ASSERT(value.wants_gradient(), "the value is not on this tape");
  Gradient gradient = std::exchange(gradients_[value.id], {});
  context.stream.wait(gradient.ready);
  return gradient.tensor;
}

}  // namespace piton
