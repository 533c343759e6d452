// Matrix products through oneDNN: the only file that knows the library. Builds against 2.x and 3.x,
// whose descriptors differ; the constraints in make() choose.
#include <omp.h>

#include <dnnl.hpp>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <tuple>
#include <unordered_map>

#include "base/error.h"
#include "kernels/cpu/matmul.h"

namespace piton::cpu {
namespace {

using Dims = dnnl::memory::dims;
using Layout = dnnl::memory::desc;
using Tag = dnnl::memory::format_tag;

dnnl::memory::data_type data_type(Type type) {
  switch (type) {
    case Type::kBF16:
      return dnnl::memory::data_type::bf16;
    case Type::kF16:
      return dnnl::memory::data_type::f16;
    case Type::kF32:
      break;
  }
  return dnnl::memory::data_type::f32;
}

Layout plain(std::int64_t rows, std::int64_t columns, Type type, Form form, std::int64_t stride) {
  const Dims strides = form == Form::kTransposed ? Dims{1, stride} : Dims{stride, 1};
  return {{rows, columns}, data_type(type), strides};
}

template <typename Product>
auto make(const dnnl::engine& engine, const Layout& a, const Layout& b, const Layout& bias,
          const Layout& c, const dnnl::primitive_attr& attributes) {
  if constexpr (requires { typename Product::desc; }) {  // 2.x
    if (bias.get_size() == 0) {
      return typename Product::primitive_desc(typename Product::desc(a, b, c), attributes, engine);
    }
    return
        typename Product::primitive_desc(typename Product::desc(a, b, bias, c), attributes, engine);
  } else {
    if (bias.get_size() == 0) return typename Product::primitive_desc(engine, a, b, c, attributes);
    return typename Product::primitive_desc(engine, a, b, bias, c, attributes);
  }
}

struct Made {
  dnnl::matmul primitive;
  Layout a, b, bias, c, scratch;
};

using LayoutKey = std::tuple<std::int64_t, std::int64_t, Type>;

}  // namespace

struct Matmul::State {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  std::shared_mutex mutex;
  std::map<ProductShape, Made> products;
  std::map<LayoutKey, Layout> layouts;

  // The library reads the number of OpenMP threads when it makes and when it runs something; the
  // setting belongs to the calling thread.
  static void be_alone() { omp_set_num_threads(1); }

  // Products of few rows read the layout that many rows chose.
  static constexpr std::int64_t kLayoutRows = 128;

  Layout layout(std::int64_t n, std::int64_t k, Type type) {
    const LayoutKey key{n, k, type};
    {
      const std::shared_lock lock(mutex);
      if (const auto found = layouts.find(key); found != layouts.end()) return found->second;
    }
    be_alone();
    const auto made = make<dnnl::matmul>(
        engine, plain(kLayoutRows, k, type, Form::kPlain, k), {{k, n}, data_type(type), Tag::any},
        Layout(), plain(kLayoutRows, n, type, Form::kPlain, n), dnnl::primitive_attr());
    const std::unique_lock lock(mutex);
    return layouts.emplace(key, made.weights_desc()).first->second;
  }

  const Made& product(const ProductShape& shape) {
    {
      const std::shared_lock lock(mutex);
      if (const auto found = products.find(shape); found != products.end()) return found->second;
    }
    be_alone();
    const Layout a = plain(shape.m, shape.k, shape.in, shape.a_form, shape.a_stride);
    const Layout b = shape.b_form == Form::kPacked
                         ? layout(shape.n, shape.k, shape.in)
                         : plain(shape.k, shape.n, shape.in, shape.b_form, shape.b_stride);
    const Layout c = plain(shape.m, shape.n, shape.out, Form::kPlain, shape.c_stride);
    const Layout bias =
        shape.bias ? plain(1, shape.n, shape.bias_type, Form::kPlain, shape.n) : Layout();
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (shape.accumulate) {
      dnnl::post_ops sum;
      sum.append_sum(1.0F);
      attributes.set_post_ops(sum);
    }
    const auto made = make<dnnl::matmul>(engine, a, b, bias, c, attributes);
    const std::unique_lock lock(mutex);
    return products.emplace(shape, Made{dnnl::matmul(made), a, b, bias, c, made.scratchpad_desc()})
        .first->second;
  }
};

Matmul::Matmul() : state_(std::make_unique<State>()) {}
Matmul::~Matmul() = default;

std::string Matmul::version() const {
  const dnnl::version_t* version = dnnl::version();
  return fmt::format("oneDNN {}.{}.{}", version->major, version->minor, version->patch);
}

std::int64_t Matmul::scratch_bytes(const ProductShape& shape) {
  return static_cast<std::int64_t>(state_->product(shape).scratch.get_size());
}

void Matmul::run(const ProductShape& shape, const void* a, const void* b, const void* bias, void* c,
                 std::byte* scratch) {
  const Made& made = state_->product(shape);
  State::be_alone();
  const auto memory = [&](const Layout& layout, const void* data) {
    return dnnl::memory(layout, state_->engine, const_cast<void*>(data));
  };
  dnnl::stream stream(state_->engine);
  std::unordered_map<int, dnnl::memory> arguments{
      {DNNL_ARG_SRC, memory(made.a, a)},
      {DNNL_ARG_WEIGHTS, memory(made.b, b)},
      {DNNL_ARG_DST, memory(made.c, c)},
      {DNNL_ARG_SCRATCHPAD, memory(made.scratch, scratch)}};
  if (shape.bias) arguments.emplace(DNNL_ARG_BIAS, memory(made.bias, bias));
  made.primitive.execute(stream, arguments);
}

std::int64_t Matmul::packed_bytes(std::int64_t n, std::int64_t k, Type type) {
  return static_cast<std::int64_t>(state_->layout(n, k, type).get_size());
}

void Matmul::pack(std::int64_t n, std::int64_t k, Type type, Form b_form, std::int64_t b_stride,
                  const void* b, void* packed) {
  State::be_alone();
  dnnl::memory from(plain(k, n, type, b_form, b_stride), state_->engine, const_cast<void*>(b));
  dnnl::memory to(state_->layout(n, k, type), state_->engine, packed);
  dnnl::stream stream(state_->engine);
  dnnl::reorder(from, to).execute(stream, from, to);
}

}  // namespace piton::cpu
