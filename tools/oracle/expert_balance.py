"""Routing and the balance of experts of Megatron-core 0.16.1, in float64 but for its softmax, which is fp32.

  python tools/oracle/expert_balance.py > tests/golden/expert_balance.txt     (torch 2.15, megatron-core 0.16.1)

For each case a line "tokens experts choices normalized factor", then the logits, a gradient of the weights for each token and
expert, the weights of all experts of a token (0 where it is not chosen), as topk_routing_with_score_function has them, the
balance, as switch_load_balancing_loss_func has it with a coefficient of 1, and the gradient by the logits of
sum(gradient * weights) + factor * tokens * balance. Then the same of sigmoids: "tokens experts choices 1 factor groups
group_topk scaling", with a line of the bias of the choice after the logits. The balance counts choices without bias and groups.
"""
import datetime
import importlib.metadata as metadata

import torch
from megatron.core.transformer.moe.moe_utils import (compute_routing_scores_for_aux_loss,
                                                     switch_load_balancing_loss_func,
                                                     topk_routing_with_score_function)


def numbers(tensor):
    return " ".join(repr(float(one)) for one in tensor.detach().flatten())


def main():
    torch.manual_seed(9)
    print(f"# tools/oracle/expert_balance.py, torch {torch.__version__.split('+')[0]}, megatron-core "
          f"{metadata.version('megatron-core')}, {datetime.date.today()}")
    for tokens, experts, choices, normalized, factor in ((6, 4, 2, 1, 0.0), (7, 5, 2, 0, 0.5), (9, 8, 3, 1, 2.0),
                                                         (5, 3, 1, 0, 1.0), (4, 3, 3, 1, 0.25)):
        logits = (2 * torch.randn(tokens, experts, dtype=torch.float64)).requires_grad_()
        slope = torch.randn(tokens, experts, dtype=torch.float64)
        weights, chosen = topk_routing_with_score_function(logits, choices, use_pre_softmax=not normalized)
        same, scores = compute_routing_scores_for_aux_loss(logits, choices, "softmax")
        assert torch.equal(same, chosen)
        balance = switch_load_balancing_loss_func(scores, chosen.sum(0), tokens, choices, experts, 1.0)
        ((slope * weights).sum() + factor * tokens * balance).backward()
        print(tokens, experts, choices, normalized, factor)
        for one in (logits, slope, weights, balance, logits.grad):
            print(numbers(one))
    of_sigmoids()


def of_sigmoids():
    for tokens, experts, choices, factor, groups, chosen_groups, scaling in ((6, 4, 2, 0.0, 1, 1, 1.0), (7, 12, 4, 0.5, 4, 2, 2.5),
                                                                           (9, 16, 6, 2.0, 4, 3, 0.7)):
        logits = (2 * torch.randn(tokens, experts, dtype=torch.float64)).requires_grad_()
        bias = 0.3 * torch.randn(experts, dtype=torch.float64)
        slope = torch.randn(tokens, experts, dtype=torch.float64)
        weights, _ = topk_routing_with_score_function(logits, choices, num_groups=groups, group_topk=chosen_groups if groups > 1 else None,
                                                      scaling_factor=scaling, score_function="sigmoid", expert_bias=bias)
        counted, scores = compute_routing_scores_for_aux_loss(logits, choices, "sigmoid")
        balance = switch_load_balancing_loss_func(scores, counted.sum(0), tokens, choices, experts, 1.0)
        ((slope * weights).sum() + factor * tokens * balance).backward()
        print(tokens, experts, choices, 1, factor, groups, chosen_groups, scaling)
        for one in (logits, bias, slope, weights, balance, logits.grad):
            print(numbers(one))


main()
