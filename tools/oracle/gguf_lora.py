"""An adapter as a folder of PEFT and as a GGUF file of llama.cpp, for the small LLaMA of tests/golden/huggingface.

  python tools/oracle/gguf_lora.py golden tests/golden/lora_gguf     (torch, transformers, peft, gguf 0.17)
  python tools/oracle/gguf_lora.py compare build/piton               (and llama-cpp-python)

`golden`: PEFT draws and saves the adapter. The GGUF file follows llama.cpp's convert_lora_to_gguf.py: keys general.architecture,
general.type, adapter.type, adapter.lora.alpha; the names of gguf.get_tensor_name_map; A as it is, B of query and key with
its rows permuted as LlamaModel.permute does for the weights. A is F32, B is F16.

`compare`: adapters that PEFT draws of Mixtral's experts, and of DeepSeek-V2's experts, shared experts and dense layer, next
to those of attention. The base and the adapter become GGUF files, and the logits that llama.cpp computes with
both are held against those of PEFT.
"""
import ctypes
import json
import pathlib
import shutil
import sys
import tempfile
import types

import gguf
import gguf_files
import huggingface
import lora
import peft
import torch
from safetensors.torch import load_file, save_file


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


class WithAdapter(gguf_files.LlamaCpp):
    """A model in llama.cpp with an adapter."""

    def __init__(self, path, adapter):
        super().__init__(path)
        self.adapter = self.lib.llama_adapter_lora_init(self.model, str(adapter).encode())
        assert self.adapter, adapter
        plain = self.library.context
        self.library = types.SimpleNamespace(context=lambda model, size: self.adapted(plain(model, size)))

    def adapted(self, context):
        adapters = (ctypes.c_void_p * 1)(ctypes.cast(self.adapter, ctypes.c_void_p))
        call = self.lib.llama_set_adapters_lora
        assert call(context, ctypes.cast(adapters, call.argtypes[1]), 1, (ctypes.c_float * 1)(1.0)) == 0
        return context


def compare(piton):
    good = True
    # A GGUF file has one alpha and adapters alone, and llama.cpp uses none of the other linears of latent attention.
    lora.CASES["mixtral"].pop("alpha_pattern")
    lora.CASES["deepseek-v2"] = dict(target_modules=["o_proj", "gate_proj", "up_proj", "down_proj"])
    for name in ("mixtral", "deepseek-v2"):
        with tempfile.TemporaryDirectory() as work:
            work = pathlib.Path(work)
            if name == "deepseek-v2":  # llama.cpp has no word for the positions of the committed model
                huggingface.build(gguf_files.models()["deepseek-v2-plain"]).save_pretrained(work / "base")
                lora.base_folder = lambda _, folder=work / "base": folder
            model = lora.adapted(name)
            model.save_pretrained(work / "peft")
            weights = load_file(work / "peft/adapter_model.safetensors")
            save_file({lora.saved_name(key, name): value for key, value in weights.items()},
                      work / "peft/adapter_model.safetensors", metadata={"format": "pt"})
            base = lora.base_folder(name)
            for flags in (["--to", "gguf", "--outtype", "f32", "--save", work / "base.gguf"],
                          ["--to", "gguf-lora", "--lora-load", work / "peft", "--save", work / "adapter.gguf"]):
                gguf_files.piton(piton, "convert", "--load", base, *flags)
            tokens = torch.arange(3, 43) * 7 % 131
            with torch.no_grad():
                wanted = model(tokens[None]).logits[0].numpy()
            plain = gguf_files.LlamaCpp(work / "base.gguf").logits(tokens)
            worst = abs(WithAdapter(work / "base.gguf", work / "adapter.gguf").logits(tokens) - wanted).max()
            moved = abs(plain - wanted).max()
            good &= bool(worst < 1e-3 and moved > 0.1)
            print(f"{'ok  ' if worst < 1e-3 else 'BAD '} {name:12} logits {worst:.2e}, without the adapter {moved:.2e}")
    return good


if __name__ == "__main__":
    if sys.argv[1] == "golden":
        main(pathlib.Path(sys.argv[2]))
    elif not compare(sys.argv[2]):
        sys.exit(1)
