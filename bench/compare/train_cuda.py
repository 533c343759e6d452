"""Training steps of GPT-2 124M by PyTorch on a GPU, to compare with the step times of `piton pretrain`.

    python bench/compare/train_cuda.py --micro-batch-size 8 --seq-length 1024

Wants PyTorch and transformers. bf16 weights with AdamW(fused=True), gradient clipping at norm 1, dropout 0,
random weights and tokens; eager and compiled. Prints one JSON object: the times of all steps in seconds.
"""
import argparse
import json
import time


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--micro-batch-size", type=int, default=8)
    parser.add_argument("--seq-length", type=int, default=1024)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--eager", action="store_true", help="do not compile")
    arguments = parser.parse_args()

    import torch
    import transformers

    config = transformers.GPT2Config(vocab_size=50304, n_positions=max(1024, arguments.seq_length), resid_pdrop=0,
                                     embd_pdrop=0, attn_pdrop=0, use_cache=False, n_layer=arguments.layers)
    shape = (arguments.micro_batch_size, arguments.seq_length)
    tokens = torch.randint(0, config.vocab_size, shape, device=arguments.device)
    result = {"torch": torch.__version__, "micro_batch_size": shape[0], "seq_length": shape[1]}
    for name in ["eager"] if arguments.eager else ["eager", "compile"]:
        model = transformers.GPT2LMHeadModel(config).to(arguments.device, torch.bfloat16)
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
