"""Run by torchrun with 2 processes: penalties and gradients equal those of a single process."""

from __future__ import annotations

import copy
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from taut import control


def build():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).train()


def whole(tensor):
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def gradients(model):
    named = ((name.removeprefix("module."), p) for name, p in model.named_parameters())
    return {name: whole(p.grad).clone() for name, p in named}


def main() -> None:
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    data = torch.randn(4, 6, 16)
    mine = data.chunk(world)[rank]

    def step(model, x, method, parts=("AM", "LA", "LF")):
        plain = getattr(model, "module", model)
        constraint = control.Orthogonality(plain, list(parts), strength=1e-2).start()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        loss = model(x).square().mean()
        if method == "loss":
            (loss + constraint.penalty()).backward()
        else:
            only = control.Orthogonality(plain, ["LA", "LF"], strength=1e-2, before_step=True)
            only.start(optimizer)
            loss.backward()
            optimizer.step()
        value = constraint.values() if method == "loss" else only.values()
        constraint.bake()
        return gradients(model), value

    for method in ("loss", "attach"):
        expected, value = step(build(), data, method)
        ddp = DistributedDataParallel(build())
        sharded = build()
        for layer in sharded.layers:
            fully_shard(layer)
        fully_shard(sharded)
        for name, model in (("DDP", ddp), ("FSDP2", sharded)):
            found, other = step(model, mine, method)
            assert set(found) == set(expected)
            for key, gradient in expected.items():
                error = float((found[key] - gradient).abs().max())
                assert error < 1e-6, (name, method, key, error)
            for part in ("LA", "LF"):
                assert abs(other[part] - value[part]) < 1e-4 * value[part], (name, part)
    # A projection of shards is the projection of the whole.
    alone, sharded = build(), build()
    for layer in sharded.layers:
        fully_shard(layer)
    fully_shard(sharded)
    for model in (alone, sharded):
        assert all(row.holds for row in control.Projection(model, limit=0.3).start().verify())
    named = dict(sharded.named_parameters())
    for key, parameter in alone.named_parameters():
        assert torch.allclose(whole(named[key]), parameter, atol=1e-6), key
    state = copy.deepcopy({k: whole(v) for k, v in sharded.state_dict().items()})
    build().load_state_dict(state)
    dist.barrier()
    if rank == 0:
        print("equal")
    dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(main())
