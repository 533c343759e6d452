// The functions of cuBLASLt that this folder uses, from the library of the machine. Internal to
// this folder.
#pragma once

#include <cublasLt.h>

#include <string_view>

#include "base/shared_library.h"

namespace piton::cuda {

struct CublasLt {
  // Throws Error(kUsage) if there is no library of the major version of the headers.
  CublasLt();

  // Returns if `status` is success. Throws Error(kPeer) if the device is lost, Error(kUsage) if the
  // library cannot do it, and asserts that the arguments were right. `doing`: for the message.
  void check(cublasStatus_t status, std::string_view doing) const;

  SharedLibrary library;
  decltype(cublasLtGetStatusString)* status_text = nullptr;
  decltype(cublasLtCreate)* create = nullptr;
  decltype(cublasLtDestroy)* destroy = nullptr;
  decltype(cublasLtMatrixLayoutCreate)* create_layout = nullptr;
  decltype(cublasLtMatrixLayoutDestroy)* destroy_layout = nullptr;
  decltype(cublasLtMatrixLayoutSetAttribute)* set_in_layout = nullptr;
  decltype(cublasLtMatmulDescCreate)* create_description = nullptr;
  decltype(cublasLtMatmulDescDestroy)* destroy_description = nullptr;
  decltype(cublasLtMatmulDescSetAttribute)* set_in_description = nullptr;
  decltype(cublasLtMatmulPreferenceCreate)* create_preference = nullptr;
  decltype(cublasLtMatmulPreferenceDestroy)* destroy_preference = nullptr;
  decltype(cublasLtMatmulPreferenceSetAttribute)* set_in_preference = nullptr;
  decltype(cublasLtMatmulAlgoGetHeuristic)* find_algorithm = nullptr;
  decltype(cublasLtMatmul)* multiply = nullptr;
};

}  // namespace piton::cuda
