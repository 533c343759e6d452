#include "kernels/cuda/cublas_lt.h"

#include <string>

#include "base/error.h"
#include "kernels/cuda/kernels.h"

namespace piton::cuda {

CublasLt::CublasLt()
    : library("--kernels cuda",
              {"libcublasLt.so." + std::to_string(CUBLAS_VER_MAJOR),
               "/usr/local/cuda/lib64/libcublasLt.so." + std::to_string(CUBLAS_VER_MAJOR)},
              "install cuBLAS of CUDA " + std::to_string(CUBLAS_VER_MAJOR) +
                  ", put its folder on LD_LIBRARY_PATH, or use --kernels cpu") {
  library.find(status_text, "cublasLtGetStatusString");
  library.find(create, "cublasLtCreate");
  library.find(destroy, "cublasLtDestroy");
  library.find(create_layout, "cublasLtMatrixLayoutCreate");
  library.find(destroy_layout, "cublasLtMatrixLayoutDestroy");
  library.find(set_in_layout, "cublasLtMatrixLayoutSetAttribute");
  library.find(create_description, "cublasLtMatmulDescCreate");
  library.find(destroy_description, "cublasLtMatmulDescDestroy");
  library.find(set_in_description, "cublasLtMatmulDescSetAttribute");
  library.find(create_preference, "cublasLtMatmulPreferenceCreate");
  library.find(destroy_preference, "cublasLtMatmulPreferenceDestroy");
  library.find(set_in_preference, "cublasLtMatmulPreferenceSetAttribute");
  library.find(find_algorithm, "cublasLtMatmulAlgoGetHeuristic");
  library.find(multiply, "cublasLtMatmul");
}

void CublasLt::check(cublasStatus_t status, std::string_view doing) const {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  const char* text = status_text(status);
  if (status == CUBLAS_STATUS_EXECUTION_FAILED || status == CUBLAS_STATUS_INTERNAL_ERROR)
    throw Error(Fault::kPeer, "cuda: {}: the device is lost: {}", doing, text);
  if (status == CUBLAS_STATUS_NOT_INITIALIZED || status == CUBLAS_STATUS_ARCH_MISMATCH ||
      status == CUBLAS_STATUS_NOT_SUPPORTED) {
    throw Error(Fault::kUsage, "cuda: {}: cuBLASLt: {}; use --kernels cpu", doing, text);
  }
  PITON_ASSERT(false, "cuda: {}: cuBLASLt: {}", doing, text);
}

std::string library_obstacle() {
  try {
    CublasLt();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace piton::cuda
