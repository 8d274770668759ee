"""The norms that trainers report are those of the gradients as one process computes them, image by image."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from course_lib.config import RunConfig
from course_lib.runs import store
from course_lib.runs.launch import launch
from course_lib.training import data, ddp, models, single
from course_lib.training.gradient_norms import gradient_norm

pytestmark = pytest.mark.usefixtures("no_process_left")

# 53 images on up to 4 ranks: steps of 24, 24 and 5. With so small a rate the weights stay what they were.
STEPS = RunConfig(
    model="small_cnn", data="subset", train_samples=53, batch_size=24, epochs=1, lr=1e-12, lr_rule="none", seed=5
)
VARIANTS = {
    "plain": {},
    "clipped": {"clip_norm": 1e-3},
    "accumulated": {"accumulation_steps": 2},
    "accumulated, clipped": {"accumulation_steps": 2, "clip_norm": 1e-3},
}


@cache
def norm_of(indices: tuple[int, ...]) -> float:
    """The norm of the mean gradient over these images at the first weights, in double precision."""
    torch.manual_seed(STEPS.seed)
    network = models.build(STEPS.model).double()
    images, labels = data.load("subset", "cpu", STEPS.train_samples)[0].batch(torch.tensor(indices))
    cross_entropy(network(images.double()), labels).backward()
    return gradient_norm(network).item()


def expected(config: RunConfig) -> list[tuple[int, int, int, float, float]]:
    """Rank, step, local samples, norm and local norm (NaN without an image) of each step's report."""
    rows = []
    sampler = data.Sampler(STEPS.train_samples, config.seed)
    size = config.global_batch_size
    for step, start in enumerate(range(0, STEPS.train_samples, size), 1):
        whole = sampler.order()[start : start + size].tolist()
        for rank in range(config.world_size):
            share = whole[rank :: config.world_size]
            local = norm_of(tuple(share)) if share else np.nan
            rows.append((rank, step, len(share), norm_of(tuple(whole)), local))
    return rows


def reported(train, config: RunConfig) -> np.ndarray:
    """The same columns, as the trainer reports them."""
    run = launch(train, config)
    run.wait(120)
    columns = ["rank", "step", "local_samples", "grad_norm", "local_grad_norm"]
    return store.steps(run.path)[columns].sort_values(["step", "rank"]).to_numpy(float)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(("train", "world_size"), [(single.train, 1), *((ddp.train, size) for size in (1, 2, 3, 4))])
def test_norms_are_those_of_the_mean_gradients(train, world_size, variant):
    config = STEPS.with_(num_gpus=world_size, batch_size=24 // world_size, **VARIANTS[variant])
    config = config.with_(batch_size=config.batch_size // config.accumulation_steps)
    np.testing.assert_allclose(reported(train, config), expected(config), rtol=1e-4)


def test_a_rank_without_an_image_has_no_gradient_of_its_own():
    """5 images are left in the last step for 6 ranks."""
    config = STEPS.with_(num_gpus=6, batch_size=4)
    rows = expected(config)
    assert np.isnan(rows[-1][-1])
    np.testing.assert_allclose(reported(ddp.train, config), rows, rtol=1e-4)


@pytest.mark.parametrize(("train", "world_size"), [(single.train, 1), (ddp.train, 2)])
def test_what_scales_the_loss_in_half_precision_is_not_in_the_norms(train, world_size):
    """Nor in the first steps, in which the scaler finds that its factor was too large, and halves it."""
    config = STEPS.with_(num_gpus=world_size, batch_size=12 // world_size, precision="fp16", clip_norm=1e-3)
    norms, rows = reported(train, config), np.array(expected(config))
    fits = np.isfinite(norms)
    assert fits.mean() > 0.8
    np.testing.assert_allclose(norms[fits], rows[fits], rtol=0.05)


def test_a_network_without_gradients_has_norm_zero():
    assert gradient_norm(models.build("mlp")).item() == 0
