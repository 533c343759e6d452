"""Training steps of a model by PyTorch on a GPU, to compare with the step times of `piton pretrain`.

    python bench/compare/train_cuda.py --model gpt2-124m --micro-batch-size 8 --seq-length 1024

Wants PyTorch and transformers. bf16 weights with AdamW(fused=True), gradient clipping at norm 1, dropout 0,
random weights and tokens; eager and compiled. Prints one JSON object: the times of all steps in seconds.
"""
import argparse
import json
import time


def gpt2(transformers, length):
    return transformers.GPT2Config(vocab_size=50304, n_positions=max(1024, length), resid_pdrop=0, embd_pdrop=0,
                                   attn_pdrop=0, use_cache=False)


def llama(transformers, length):
    return transformers.LlamaConfig(vocab_size=32000, hidden_size=2048, intermediate_size=5632, num_hidden_layers=22,
                                    num_attention_heads=32, num_key_value_heads=4, use_cache=False,
                                    max_position_embeddings=max(2048, length))


# As the presets of Piton.
MODELS = {"gpt2-124m": gpt2, "llama-1.1b": llama}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=sorted(MODELS), default="gpt2-124m")
    parser.add_argument("--micro-batch-size", type=int, default=8)
    parser.add_argument("--seq-length", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--forms", default="eager,compile", help="of eager and compile")
    arguments = parser.parse_args()

    import torch
    import transformers

    config = MODELS[arguments.model](transformers, arguments.seq_length)
    shape = (arguments.micro_batch_size, arguments.seq_length)
    tokens = torch.randint(0, config.vocab_size, shape, device=arguments.device)
    result = {"torch": torch.__version__, "model": arguments.model, "micro_batch_size": shape[0],
              "seq_length": shape[1]}
    for name in arguments.forms.split(","):
        with torch.device(arguments.device):
            model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
        run = torch.compile(model) if name == "compile" else model
        times = []
        for _ in range(2 + arguments.rounds):
            begin = time.perf_counter()
            loss = run(tokens, labels=tokens).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            loss.item()  # waits for the step
            times.append(time.perf_counter() - begin)
        result[name] = times[2:]
    print(json.dumps(result))


if __name__ == "__main__":
    main()
