"""An adapter as a folder of PEFT and as a GGUF file of llama.cpp, for the small LLaMA of tests/golden/huggingface.

  python tools/oracle/gguf_lora.py tests/golden/lora_gguf     (torch, transformers, peft, gguf 0.17)

PEFT draws and saves the adapter. The GGUF file follows llama.cpp's convert_lora_to_gguf.py: keys general.architecture,
general.type, adapter.type, adapter.lora.alpha; the names of gguf.get_tensor_name_map; A as it is, B of query and key with
its rows permuted as LlamaModel.permute does for the weights. A is F32, B is F16.
"""
import json
import pathlib
import shutil
import sys

import gguf
import lora
import peft
import torch
from safetensors.torch import load_file


def permute(rows, heads):
    """convert_hf_to_gguf.py, LlamaModel.permute."""
    return (rows.reshape(heads, 2, rows.shape[0] // heads // 2, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape))


def main(folder):
    shutil.rmtree(folder, ignore_errors=True)
    torch.manual_seed(9)
    base = lora.base("llama")
    model = peft.get_peft_model(base, peft.LoraConfig(r=4, lora_alpha=6, task_type="CAUSAL_LM",
                                                      target_modules=["q_proj", "k_proj", "v_proj", "up_proj", "down_proj"]))
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if "lora_" in key:
                parameter.copy_((0.2 * torch.randn(parameter.shape)).half())
    model.save_pretrained(folder)
    (folder / "README.md").unlink(missing_ok=True)
    config = json.loads((folder / "adapter_config.json").read_text())
    config["base_model_name_or_path"] = "tests/golden/huggingface/llama"
    (folder / "adapter_config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")

    writer = gguf.GGUFWriter(folder / "adapter.gguf", "llama")
    writer.add_type(gguf.GGUFType.ADAPTER)
    writer.add_string(gguf.Keys.Adapter.TYPE, "lora")
    writer.add_float32(gguf.Keys.Adapter.LORA_ALPHA, 6.0)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, base.config.num_hidden_layers)
    for key, tensor in load_file(folder / "adapter_model.safetensors").items():
        module, factor, _ = key.removeprefix("base_model.model.").rsplit(".", 2)
        if factor == "lora_B" and module.endswith("q_proj"):
            tensor = permute(tensor, base.config.num_attention_heads)
        if factor == "lora_B" and module.endswith("k_proj"):
            tensor = permute(tensor, base.config.num_key_value_heads)
        values = tensor.half() if factor == "lora_B" else tensor
        writer.add_tensor(names.get_name(module) + ".weight." + factor.lower(), values.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
