// cuBLASLt. It takes column-major matrices, and a row-major matrix is its transpose in that order:
// y = left right is computed as y^T = right^T left^T.
#include "kernels/cuda/product.h"

#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>
#include <tuple>

#include "base/error.h"
#include "device/cuda/check.h"
#include "kernels/cuda/cublas_lt.h"
#include "kernels/cuda/scratch.h"
#include "kernels/cuda/trial/product_trial.h"

namespace piton::cuda {
namespace {

// NVIDIA's advice for Hopper; older devices need less.
constexpr std::int64_t kWorkspaceBytes = std::int64_t{32} << 20;
// The library refuses scratch that begins elsewhere.
constexpr std::int64_t kWorkspaceAlignment = 256;
// Algorithms of the library that are tried (product_trial.h).
constexpr int kCandidates = 8;
// The rows for which an algorithm is chosen, whatever the number of rows of a call is.
constexpr std::uint64_t kUsualRows = 4096;

cudaDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return CUDA_R_64F;
    case DType::kBF16:
      return CUDA_R_16BF;
    case DType::kF16:
      return CUDA_R_16F;
    default:
      return CUDA_R_32F;
  }
}

// Scratch of the library, which lives as long as the tensor: the arena aligns to fewer bytes.
struct Workspace {
  Tensor memory;

  explicit Workspace(const CallContext& context)
      : memory(scratch(DType::kU8, {kWorkspaceBytes + kWorkspaceAlignment}, context)) {}

  void* data() const {
    void* first = memory.raw();
    auto bytes = static_cast<std::size_t>(kWorkspaceBytes + kWorkspaceAlignment);
    return std::align(static_cast<std::size_t>(kWorkspaceAlignment),
                      static_cast<std::size_t>(kWorkspaceBytes), first, bytes);
  }
};

// Handles of the library that end with their scope.
template <typename Handle>
class Owned {
 public:
  explicit Owned(cublasStatus_t (*destroy)(Handle)) : destroy_(destroy) {}
  ~Owned() {
    if (handle_ != nullptr) destroy_(handle_);
  }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  Handle* address() { return &handle_; }
  Handle get() const { return handle_; }

 private:
  cublasStatus_t (*destroy_)(Handle);
  Handle handle_ = nullptr;
};

using Layout = Owned<cublasLtMatrixLayout_t>;
using Description = Owned<cublasLtMatmulDesc_t>;
using Preference = Owned<cublasLtMatmulPreference_t>;

// What the choice of an algorithm depends on: widths, types, the form, and alignments.
using AlgorithmKey = std::array<std::int64_t, 14>;

constexpr std::int64_t kWidestAlignment = 16;

// The largest power of two, up to 16, that divides address and row length in bytes.
std::int64_t alignment_of(const Tensor& matrix) {
  const auto bits = reinterpret_cast<std::uintptr_t>(matrix.raw()) |
                    static_cast<std::uintptr_t>(matrix.stride(0) * size_bytes(matrix.dtype())) |
                    std::uintptr_t{16};
  return std::int64_t{1} << std::countr_zero(bits);
}

// That of y, and of the bias: the library has no other word for it, and reads it in vectors too.
std::int64_t alignment_of_result(const Product& product) {
  const std::int64_t own = alignment_of(product.y);
  if (!product.bias.defined()) return own;
  const auto bits = reinterpret_cast<std::uintptr_t>(product.bias.raw()) | std::uintptr_t{16};
  return std::min(own, std::int64_t{1} << std::countr_zero(bits));
}

// One product in the library's terms. `rows`: m, or the usual rows while an algorithm is chosen.
struct LibraryProduct {
  const CublasLt& blas;
  Description description{blas.destroy_description};
  Layout a{blas.destroy_layout};  // right
  Layout b{blas.destroy_layout};  // left
  Layout c{blas.destroy_layout};  // addend
  Layout d{blas.destroy_layout};  // y

  LibraryProduct(const CublasLt& library, const Product& product, std::uint64_t rows)
      : blas(library) {
    const bool wide = product.y.dtype() == DType::kF64;
    blas.check(blas.create_description(description.address(),
                                       wide ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F,
                                       wide ? CUDA_R_64F : CUDA_R_32F),
               "description of a product");
    const cublasOperation_t transposed = CUBLAS_OP_T;
    if (product.right_transposed) set(CUBLASLT_MATMUL_DESC_TRANSA, transposed);
    if (product.left_transposed) set(CUBLASLT_MATMUL_DESC_TRANSB, transposed);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, end_of(product));
    if (product.bias.defined()) {
      const void* bias = product.bias.raw();
      set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
    }
    if (product.preactivation.defined()) {
      const void* preactivation = product.preactivation.raw();
      set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, preactivation);
      set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, product.preactivation.stride(0));
    }
    const auto columns = [](const Tensor& matrix) {
      return static_cast<std::uint64_t>(matrix.dim(1));
    };
    const auto right_rows = static_cast<std::uint64_t>(product.right.dim(0));
    make(a, product.right, columns(product.right), right_rows);
    if (product.left_transposed) {  // [k, m]
      make(b, product.left, rows, static_cast<std::uint64_t>(product.left.dim(0)));
    } else {
      make(b, product.left, columns(product.left), rows);
    }
    make(c, addend_of(product), columns(product.y), rows);
    make(d, product.y, columns(product.y), rows);
    if (product.parts.count == 1) return;
    repeat(a, product.parts.count, product.parts.right);
    repeat(b, product.parts.count, product.parts.left);
    repeat(c, product.parts.count, product.parts.y);
    repeat(d, product.parts.count, product.parts.y);
  }

  // What follows the sum.
  static cublasLtEpilogue_t end_of(const Product& product) {
    const bool bias = product.bias.defined();
    if (!product.activates) return bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
    if (product.preactivation.defined())
      return bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
    return bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
  }

  // Without an addend beta is 0, and y is not read.
  static const Tensor& addend_of(const Product& product) {
    return product.addend.defined() ? product.addend : product.y;
  }

 private:
  template <typename Value>
  void set(cublasLtMatmulDescAttributes_t attribute, const Value& value) {
    blas.check(blas.set_in_description(description.get(), attribute, &value, sizeof(value)),
               "description of a product");
  }
  void make(Layout& layout, const Tensor& matrix, std::uint64_t rows, std::uint64_t columns) {
    blas.check(blas.create_layout(layout.address(), type_of(matrix.dtype()), rows, columns,
                                  matrix.stride(0)),
               "layout of a product");
  }
  // That many matrices, so many elements apart.
  void repeat(Layout& layout, std::int64_t count, std::int64_t apart) {
    const auto number = static_cast<std::int32_t>(count);
    const auto set_in = [&](cublasLtMatrixLayoutAttribute_t attribute, const auto& value) {
      blas.check(blas.set_in_layout(layout.get(), attribute, &value, sizeof(value)),
                 "layout of a product");
    };
    set_in(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, number);
    set_in(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, apart);
  }
};

// Where the matrices of a product are, and the factor of the addend.
struct Addresses {
  const void* left;
  const void* right;
  const void* addend;
  void* y;
  double beta;
};

// Those of part i of a product of several, which has no addend.
Addresses part_of(const Product& product, const Addresses& first, std::int64_t i) {
  const std::int64_t of_y = i * product.parts.y * size_bytes(product.y.dtype());
  const std::int64_t bytes = i * size_bytes(product.left.dtype());
  Addresses part = first;
  part.left = static_cast<const std::byte*>(first.left) + bytes * product.parts.left;
  part.right = static_cast<const std::byte*>(first.right) + bytes * product.parts.right;
  part.y = static_cast<std::byte*>(first.y) + of_y;
  part.addend = part.y;
  return part;
}

// Whether several algorithms are tried: for 16 bits, and work that takes longer than a launch.
bool deserves_trial(const Product& product) {
  constexpr double kEnough = 4e9;  // multiply-adds
  const auto depth = static_cast<double>(product.left.dim(product.left_transposed ? 0 : 1));
  return size_bytes(product.left.dtype()) == 2 &&
         static_cast<double>(product.y.elements()) * depth >= kEnough;
}

TrialSizes trial_sizes(const Product& product) {
  const auto elements = [](const Tensor& matrix) { return matrix.dim(0) * matrix.stride(0); };
  return {
      .dtype = product.left.dtype(),
      .left = elements(product.left),
      .right = elements(product.right),
      .y_bytes = elements(product.y) * static_cast<std::int64_t>(size_bytes(product.y.dtype()))};
}

AlgorithmKey key_of(const Product& product) {
  const auto number = [](auto value) { return static_cast<std::int64_t>(value); };
  return {product.y.dim(1), product.left.dim(product.left_transposed ? 0 : 1),
          number(product.left.dtype()), number(product.y.dtype()), number(product.left_transposed),
          number(product.right_transposed), number(LibraryProduct::end_of(product)),
          number(product.addend.defined()), alignment_of(product.left), alignment_of(product.right),
          alignment_of_result(product), alignment_of(LibraryProduct::addend_of(product)),
          // A weight's gradient has its rows as m: they are the same in every call.
          product.left_transposed ? product.y.dim(0) : 0,
          // Several algorithms with the same bits: which of them is fast depends on the rows too.
          deserves_trial(product)
              ? number(std::bit_width(static_cast<std::uint64_t>(product.y.dim(0))))
              : 0};
}

// Numbers of the header of CUDA 12.9; older ones lack the names.
constexpr auto kScaleModeOfA = static_cast<cublasLtMatmulDescAttributes_t>(31);
constexpr auto kScaleModeOfB = static_cast<cublasLtMatmulDescAttributes_t>(32);
constexpr std::int32_t kScaleOfRows = 4;     // CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F
constexpr std::int32_t kScaleOfSquares = 5;  // CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F
constexpr int kFirstVersionOfBlocks = 120900;

// A product in FP8 in the library's terms, as LibraryProduct.
struct LibraryFloat8 {
  const CublasLt& blas;
  Description description{blas.destroy_description};
  Layout a{blas.destroy_layout};  // right
  Layout b{blas.destroy_layout};  // left
  Layout d{blas.destroy_layout};  // y, and what is added to

  LibraryFloat8(const CublasLt& library, const Float8Product& product, std::uint64_t rows)
      : blas(library) {
    blas.check(blas.create_description(description.address(), CUBLAS_COMPUTE_32F, CUDA_R_32F),
               "description of a product in FP8");
    set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
    set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER,
        static_cast<const void*>(product.right.inverses.raw()));
    set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER,
        static_cast<const void*>(product.left.inverses.raw()));
    set_mode(kScaleModeOfA, product.right.scales);
    set_mode(kScaleModeOfB, product.left.scales);
    const auto depth = static_cast<std::uint64_t>(product.left.codes.dim(1));
    const auto width = static_cast<std::uint64_t>(product.y.dim(1));
    make(a, type_of(product.right), depth, width, product.right.codes.stride(0));
    make(b, type_of(product.left), depth, rows, product.left.codes.stride(0));
    make(d, CUDA_R_32F, width, rows, product.y.stride(0));
  }

 private:
  static cudaDataType_t type_of(const Float8Factor& factor) {
    return factor.format == Float8Format::kE4M3 ? CUDA_R_8F_E4M3 : CUDA_R_8F_E5M2;
  }
  void set_mode(cublasLtMatmulDescAttributes_t attribute, Float8Scales scales) {
    if (scales == Float8Scales::kWhole) return;  // the library's default
    set(attribute, scales == Float8Scales::kRows ? kScaleOfRows : kScaleOfSquares);
  }
  template <typename Value>
  void set(cublasLtMatmulDescAttributes_t attribute, const Value& value) {
    blas.check(blas.set_in_description(description.get(), attribute, &value, sizeof(value)),
               "description of a product in FP8");
  }
  void make(Layout& layout, cudaDataType_t type, std::uint64_t rows, std::uint64_t columns,
            std::int64_t stride) {
    blas.check(blas.create_layout(layout.address(), type, rows, columns, stride),
               "layout of a product in FP8");
  }
};

// What the algorithm of a product in FP8 depends on.
using Float8Key = std::array<std::int64_t, 8>;

Float8Key key_of(const Float8Product& product) {
  const auto number = [](auto value) { return static_cast<std::int64_t>(value); };
  return {product.y.dim(1),
          product.left.codes.dim(1),
          number(product.left.format),
          number(product.right.format),
          number(product.left.scales),
          number(product.right.scales),
          number(product.adds),
          alignment_of(product.y)};
}

}  // namespace

bool activates_in_product(ActivationKind kind, const Tensor& y, const Tensor& preactivation) {
  return kind == ActivationKind::kGeluTanh && size_bytes(y.dtype()) == 2 &&
         alignment_of(y) == kWidestAlignment &&
         (!preactivation.defined() || alignment_of(preactivation) == kWidestAlignment);
}

struct Products::State {
  CublasLt blas;
  Owned<cublasLtHandle_t> library{blas.destroy};
  std::mutex mutex;
  std::map<AlgorithmKey, cublasLtMatmulAlgo_t> algorithms;
  std::map<Float8Key, cublasLtMatmulAlgo_t> float8_algorithms;

  // Sums in FP8 are never divided along k.
  cublasLtMatmulAlgo_t algorithm(const Float8Product& product) {
    const Float8Key key = key_of(product);
    const std::scoped_lock lock(mutex);
    const auto known = float8_algorithms.find(key);
    if (known != float8_algorithms.end()) return known->second;
    const LibraryFloat8 asked(blas, product, kUsualRows);
    Preference preference{blas.destroy_preference};
    blas.check(blas.create_preference(preference.address()), "preference of a product in FP8");
    const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
      blas.check(blas.set_in_preference(preference.get(), attribute, &value, sizeof(value)),
                 "preference of a product in FP8");
    };
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<std::uint64_t>(kWorkspaceBytes));
    set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
        static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_NONE));
    for (const auto attribute :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
      set(attribute, static_cast<std::uint32_t>(alignment_of(product.y)));
    cublasLtMatmulHeuristicResult_t best{};
    int found = 0;
    blas.check(
        blas.find_algorithm(library.get(), asked.description.get(), asked.a.get(), asked.b.get(),
                            asked.d.get(), asked.d.get(), preference.get(), 1, &best, &found),
        "choice of an algorithm for a product in FP8");
    if (found == 0) {
      throw Error(Fault::kUsage,
                  "cuda: cuBLASLt has no algorithm for a product in FP8 of width {} and depth {}; "
                  "leave --fp8-format out, or use --kernels cpu",
                  key[0], key[1]);
    }
    return float8_algorithms[key] = best.algo;
  }

  // Starts a product of which the matrices are elsewhere.
  cublasStatus_t start(const Product& product, const LibraryProduct& in_library,
                       const cublasLtMatmulAlgo_t& algorithm, const Addresses& at,
                       const Workspace& workspace, cudaStream_t stream) const {
    const bool wide = product.y.dtype() == DType::kF64;
    const double one = 1;
    const float one32 = 1;
    const auto beta32 = static_cast<float>(at.beta);
    return blas.multiply(library.get(), in_library.description.get(),
                         wide ? static_cast<const void*>(&one) : &one32, at.right,
                         in_library.a.get(), at.left, in_library.b.get(),
                         wide ? static_cast<const void*>(&at.beta) : &beta32, at.addend,
                         in_library.c.get(), at.y, in_library.d.get(), &algorithm, workspace.data(),
                         static_cast<std::size_t>(kWorkspaceBytes), stream);
  }

  cublasLtMatmulAlgo_t algorithm(const Product& product, const Workspace& workspace,
                                 const CallContext& context) {
    const AlgorithmKey key = key_of(product);
    const std::scoped_lock lock(mutex);
    const auto known = algorithms.find(key);
    if (known != algorithms.end()) return known->second;
    const std::uint64_t rows =
        product.left_transposed ? static_cast<std::uint64_t>(product.y.dim(0)) : kUsualRows;
    const LibraryProduct asked(blas, product, rows);
    Preference preference{blas.destroy_preference};
    blas.check(blas.create_preference(preference.address()), "preference of a product");
    const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
      blas.check(blas.set_in_preference(preference.get(), attribute, &value, sizeof(value)),
                 "preference of a product");
    };
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<std::uint64_t>(kWorkspaceBytes));
    // A sum that is divided along k takes scratch that grows with the rows, and may be rounded to
    // the type of y in between. So only gradients of weights, whose rows are known and whose y is
    // as wide as the sums, are divided.
    set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
        static_cast<std::uint32_t>(product.left_transposed
                                       ? CUBLASLT_REDUCTION_SCHEME_INPLACE |
                                             CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE
                                       : CUBLASLT_REDUCTION_SCHEME_NONE));
    const auto align = [&](cublasLtMatmulPreferenceAttributes_t attribute, std::int64_t bytes) {
      set(attribute, static_cast<std::uint32_t>(bytes));
    };
    align(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of(product.right));
    align(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(product.left));
    align(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
          alignment_of(LibraryProduct::addend_of(product)));
    align(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment_of_result(product));
    std::array<cublasLtMatmulHeuristicResult_t, kCandidates> candidates{};
    int found = 0;
    blas.check(
        blas.find_algorithm(library.get(), asked.description.get(), asked.a.get(), asked.b.get(),
                            asked.c.get(), asked.d.get(), preference.get(),
                            deserves_trial(product) ? kCandidates : 1, candidates.data(), &found),
        "choice of an algorithm for a product");
    if (found == 0) {
      throw Error(Fault::kUsage,
                  "cuda: cuBLASLt has no algorithm for a product of width {} and depth {} in {}; "
                  "use --kernels cpu",
                  key[0], key[1], name(product.left.dtype()));
    }
    const LibraryProduct library_product(blas, product,
                                         static_cast<std::uint64_t>(product.y.dim(0)));
    const std::size_t best =
        fastest_algorithm(static_cast<std::size_t>(found), trial_sizes(product), context.stream,
                          [&](std::size_t i, const TrialMemory& memory) {
                            return start(product, library_product, candidates[i].algo,
                                         {memory.left, memory.right, memory.y, memory.y, 0.0},
                                         workspace, context.stream) == CUBLAS_STATUS_SUCCESS;
                          });
    return algorithms[key] = candidates[best].algo;
  }
};

Products::Products() : state_(std::make_unique<State>()) {
  state_->blas.check(state_->blas.create(state_->library.address()), "start of cuBLASLt");
}

Products::~Products() = default;

void Products::multiply(const Product& product, const CallContext& context) {
  const Workspace workspace(context);
  if (context.only_counts()) return;
  const auto rows = static_cast<std::uint64_t>(product.y.dim(0));
  Product one = product;
  one.parts = {};
  const cublasLtMatmulAlgo_t algorithm = state_->algorithm(one, workspace, context);
  const Addresses at{product.left.raw(), product.right.raw(),
                     LibraryProduct::addend_of(product).raw(), product.y.raw(),
                     product.addend.defined() ? 1.0 : 0.0};
  const LibraryProduct library(state_->blas, product, rows);
  const cublasStatus_t status =
      state_->start(product, library, algorithm, at, workspace, context.stream);
  if (status != CUBLAS_STATUS_NOT_SUPPORTED || product.parts.count == 1)
    return state_->blas.check(status, "product");
  // The algorithm takes one at a time.
  const LibraryProduct alone(state_->blas, one, rows);
  for (std::int64_t i = 0; i < product.parts.count; ++i) {
    state_->blas.check(
        state_->start(one, alone, algorithm, part_of(product, at, i), workspace, context.stream),
        "product");
  }
}

void Products::multiply(const Float8Product& product, const CallContext& context) {
  const Workspace workspace(context);
  if (context.only_counts()) return;
  const cublasLtMatmulAlgo_t algorithm = state_->algorithm(product);
  const CublasLt& blas = state_->blas;
  const LibraryFloat8 library(blas, product, static_cast<std::uint64_t>(product.y.dim(0)));
  const float one = 1;
  const float beta = product.adds ? 1 : 0;
  blas.check(blas.multiply(state_->library.get(), library.description.get(), &one,
                           product.right.codes.raw(), library.a.get(), product.left.codes.raw(),
                           library.b.get(), &beta, product.y.raw(), library.d.get(),
                           product.y.raw(), library.d.get(), &algorithm, workspace.data(),
                           static_cast<std::size_t>(kWorkspaceBytes), context.stream),
             "product in FP8");
}

std::string float8_obstacle(Float8Recipe recipe, int device) {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, device), "look at the device");
  const int capability = properties.major * 10 + properties.minor;
  const auto has = [&](std::string_view wanted) {
    return fmt::format("device {} ({}) has compute capability {}.{}, wanted {}", device,
                       properties.name, properties.major, properties.minor, wanted);
  };
  if (recipe != Float8Recipe::kBlockwise)
    return capability >= 89 ? "" : has("8.9 or newer for products in FP8");
  if (properties.major != 9) return has("9.0 for --fp8-recipe blockwise");
  if (CUBLAS_VERSION >= kFirstVersionOfBlocks) return "";
  return "this build has cuBLAS of a CUDA before 12.9, which --fp8-recipe blockwise needs";
}

}  // namespace piton::cuda
