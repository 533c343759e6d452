"""Megatron-core's TopKRouter: what experts with a capacity drop, seq_aux_loss and the z-loss, in float64 but for its softmax, which
is fp32.

  python tools/oracle/router_losses.py > tests/golden/router_losses.txt     (torch 2.15, megatron-core 0.16.1)

For each case a line "samples sequence experts choices sigmoid normalized balance_coefficient z_coefficient capacity_factor position",
then the logits [samples sequence, experts], a gradient of the weights, the weights of all experts of a token (0 where it is not
chosen, or dropped), the two losses as Megatron logs them, that is, without their coefficients, the gradient by the logits of
sum(gradient * weights) and of the losses that the router attaches, and the tokens that each expert gets. A capacity factor of 0 is
none. The router is TopKRouter.routing(), without its linear, which needs a GPU. Of equal numbers topk gives the first ones here, for
the policy `position`; on the CPU torch promises no order.
"""
import datetime
import importlib.metadata as metadata
from types import SimpleNamespace

import torch
from megatron.core.transformer.moe import moe_utils, router


def numbers(tensor):
    return " ".join(repr(float(one)) for one in tensor.detach().flatten())


class Alone:
    def size(self):
        return 1

    def rank(self):
        return 0


def first_of_equals(x, k, dim=-1, **_):
    values, places = torch.sort(x, dim=dim, descending=True, stable=True)
    return values.narrow(dim, 0, k), places.narrow(dim, 0, k)


def router_of(experts, choices, sigmoid, normalized, balance, z, capacity, position):
    self = router.TopKRouter.__new__(router.TopKRouter)
    torch.nn.Module.__init__(self)
    self.config = SimpleNamespace(num_moe_experts=experts, moe_router_pre_softmax=not normalized, moe_router_num_groups=None,
                                  moe_router_group_topk=None, moe_router_topk_scaling_factor=None, moe_router_fusion=False,
                                  moe_aux_loss_coeff=balance, moe_z_loss_coeff=z, moe_expert_capacity_factor=capacity or None,
                                  moe_token_drop_policy="position" if position else "probs",
                                  moe_pad_expert_input_to_capacity=False, num_layers=1, mtp_num_layers=None)
    self.topk, self.score_function = choices, "sigmoid" if sigmoid else "softmax"
    self.routing_type, self.router_replay, self.expert_bias = "seq_aux_loss", None, None
    self.enable_expert_bias = self.calculate_per_token_loss = False
    self.layer_number, self.tp_cp_group = 1, Alone()
    return self.train()


def main():
    torch.manual_seed(5)
    print(f"# tools/oracle/router_losses.py, torch {torch.__version__.split('+')[0]}, megatron-core "
          f"{metadata.version('megatron-core')}, {datetime.date.today()}")
    logged = {}
    router.save_to_aux_losses_tracker = lambda name, loss, *_, **__: logged.__setitem__(name, loss)
    router.reduce_from_tensor_model_parallel_region = moe_utils.reduce_from_tensor_model_parallel_region = lambda x, _: x
    torch.topk = first_of_equals
    for samples, sequence, experts, choices, sigmoid, normalized, balance, z, capacity, position in (
            (3, 5, 6, 2, 0, 1, 0.25, 0.0625, 0, 0), (2, 4, 4, 1, 0, 0, 0.5, 0.0, 0, 0), (3, 4, 5, 3, 1, 1, 0.5, 0.125, 0, 0),
            (1, 6, 4, 2, 1, 1, 0.25, 0.5, 0, 0), (3, 6, 6, 2, 0, 1, 0.25, 0.0625, 0.75, 0), (2, 8, 4, 1, 0, 0, 0.0, 0.0, 1.0, 0),
            (3, 6, 6, 2, 0, 1, 0.25, 0.0, 0.75, 1), (2, 8, 8, 3, 1, 1, 0.5, 0.125, 0.6, 0), (2, 8, 4, 2, 1, 1, 0.0, 0.0, 1.25, 1),
            (2, 4, 4, 2, 0, 1, 0.0, 0.0, 2.5, 0)):
        rows = (2 * torch.randn(samples, sequence, experts, dtype=torch.float64)).requires_grad_()
        slope = torch.randn(samples, sequence, experts, dtype=torch.float64)
        of = router_of(experts, choices, sigmoid, normalized, balance, z if z else None, capacity, position)
        weights, chosen = of.routing(rows.transpose(0, 1).contiguous())
        weights = weights.reshape(sequence, samples, experts).transpose(0, 1)
        (slope * weights).sum().backward()
        print(samples, sequence, experts, choices, sigmoid, normalized, balance, z, capacity, position)
        z_loss = logged["z_loss"] if z else torch.logsumexp(rows, -1).square().mean()
        losses = torch.stack([logged["seq_load_balancing_loss"] if balance else torch.zeros(()), z_loss])
        for one in (rows, slope, weights, losses, rows.grad, chosen.sum(0)):
            print(numbers(one))


main()
