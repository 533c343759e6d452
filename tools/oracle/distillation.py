"""Losses and gradients of distillation, computed by PyTorch in float64.

  python tools/oracle/distillation.py > tests/golden/distillation.txt     (torch 2.15)

For each case a line "T w rows columns", then the logits of the model, those of the teacher, labels, mask, the loss of each row
as (1 - w) cross_entropy + w T^2 kl_div(log_softmax(x / T), softmax(y / T)), the sum of mask * kl_div, and the gradient of the
sum of mask * loss to the logits. The loss of a row without a label is 0.
"""
import datetime

import torch
from torch.nn import functional


def numbers(tensor):
    return " ".join(repr(float(one)) for one in tensor.detach().flatten())


def main():
    torch.manual_seed(4)
    print(f"# tools/oracle/distillation.py, torch {torch.__version__.split('+')[0]}, {datetime.date.today()}")
    for temperature, weight, rows, columns in ((1.0, 0.5, 3, 4), (2.0, 0.9, 4, 7), (0.5, 1.0, 2, 5), (4.0, 0.25, 5, 3)):
        x = (2 * torch.randn(rows, columns, dtype=torch.float64)).requires_grad_()
        y = 2 * torch.randn(rows, columns, dtype=torch.float64)
        labels = torch.randint(0, columns, (rows,))
        labels[rows - 1] = -1
        mask = torch.rand(rows, dtype=torch.float32).double()
        entropy = functional.cross_entropy(x, labels, ignore_index=-1, reduction="none")
        apart = functional.kl_div(functional.log_softmax(x / temperature, -1), functional.softmax(y / temperature, -1),
                                  reduction="none").sum(-1) * (labels >= 0)
        loss = (1 - weight) * entropy + weight * temperature ** 2 * apart
        (mask * loss).sum().backward()
        print(temperature, weight, rows, columns)
        for one in (x, y, labels, mask, loss, (mask * apart).sum(), x.grad):
            print(numbers(one))


if __name__ == "__main__":
    main()
