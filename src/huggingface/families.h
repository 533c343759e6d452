// The families of this folder, one function a file.
#pragma once

#include "huggingface/family.h"

namespace piton {

HfFamily hf_gpt2();
HfFamily hf_llama();
HfFamily hf_mistral();
HfFamily hf_qwen2();
HfFamily hf_qwen3();

}  // namespace piton
