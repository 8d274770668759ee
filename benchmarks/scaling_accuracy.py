"""How far the scaling model is off on published measurements that it was not fitted to, beside two naive ones.

"Perfect" takes a step to last on N GPUs as long as on one; "frozen" as long as on the most GPUs that are known.
Nothing is scored on what was fitted. The priors of the models were chosen with these tables in sight, though.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
import pandas as pd

from benchmarks import published
from benchmarks.measuring import Row, figure
from course_lib.scaling.batch_size import EpochsToTarget
from course_lib.scaling.collectives import Cluster, Link, all_reduce_seconds, fit_link
from course_lib.scaling.step_time import StepTimeModel
from course_lib.scaling.throughput import ThroughputModel

MODELS = {"cifar10": ("ResNet-18", 44.7e6), "imagenet": ("ResNet-50", 102.2e6)}  # and the bytes of their gradients
FEW, MANY = 4, 8  # GPUs to calibrate on; scored on 16
ERROR_FROM_FEW, ERROR_FROM_MANY = 20.0, 8.0  # percent
ERROR_OF_EPOCHS = 8.0
COVERAGE = (70.0, 95.0)  # percent of measurements in their 80 % interval
CONFIGURATIONS = 100_000


def measure(quick: bool) -> list[Row]:
    """Errors in percent of step times, throughputs and all-reduces; and how long many predictions take."""
    return [
        *(*_steps(), *_other_batches(), *_other_models(), *_ddp_paper()),
        *(*_tables(quick), *_all_reduces(), *_epochs(), _speed()),
    ]


def _steps() -> Iterator[Row]:
    """Fitted to few GPUs, scored on 16; and fitted to up to 4 nodes, scored on up to 16 nodes."""
    inside = []
    for name, (title, _) in MODELS.items():
        frame = published.steps(name)
        placed, spread = frame[frame["placement"] != "scal"], frame[frame["placement"] == "scal"]
        for known, scored, how, line in (
            (placed[placed["gpus"] <= FEW], frame[frame["gpus"] == 16], f"1-{FEW} GPUs, scored on 16", ERROR_FROM_FEW),
            (frame[frame["gpus"] <= MANY], frame[frame["gpus"] == 16], f"1-{MANY} GPUs, scored on 16", ERROR_FROM_MANY),
            (placed, spread, "1-4 nodes, scored on 6-16 nodes", ERROR_FROM_MANY),
        ):
            predicted = StepTimeModel.fit(known).predict(scored)
            inside.append(_inside(predicted, scored))
            yield _row(f"{title} step, fitted on {how}", predicted, known, scored, line)
    yield figure(
        "steps inside their 80 % interval", "%", [float(np.mean(inside))], at_least=COVERAGE[0], at_most=COVERAGE[1]
    )


def _other_batches() -> Iterator[Row]:
    """A batch size is left out, on all GPUs; its step on 16 is predicted from the other sizes on up to 8."""
    for name, (title, _) in MODELS.items():
        frame = published.steps(name)
        errors = []
        for batch in frame.loc[frame["gpus"] == 16, "local_batch"].unique():
            known = frame[(frame["local_batch"] != batch) & (frame["gpus"] <= MANY)]
            scored = frame[(frame["local_batch"] == batch) & (frame["gpus"] == 16)]
            errors += list(_errors(StepTimeModel.fit(known).predict(scored)["step_time_s"], scored["step_time_s"]))
        note = "perfect and frozen have no figure for it"
        yield figure(
            f"{title} step of a batch size left out", "%", [_percent(errors)], at_most=ERROR_FROM_MANY, note=note
        )


def _other_models() -> Iterator[Row]:
    """One GPU's steps of a model, and the links that another model's steps tell of, predict its steps on many nodes."""
    for name, other in (tuple(MODELS), tuple(MODELS)[::-1]):
        frame, (title, gradient_bytes) = published.steps(name), MODELS[name]
        links = StepTimeModel.fit(published.steps(other)).parameters
        bandwidths = (MODELS[other][1] / links[part] for part in ("transfer_s", "inter_transfer_s"))
        cluster = Cluster(4, *(Link(0.0, bandwidth) for bandwidth in bandwidths))
        known = frame[frame["gpus"] == 1].assign(gradient_bytes=gradient_bytes)
        scored = frame[frame["nodes"] > 1]
        predicted = StepTimeModel.fit(known, cluster).predict(scored)
        how = f"1 GPU and the links of {MODELS[other][0]}, scored on 2-16 nodes"
        yield _row(f"{title} step, fitted on {how}", predicted, known, scored, ERROR_FROM_FEW)


def _ddp_paper() -> Iterator[Row]:
    """PyTorch's own tables: one node of 8 V100s is known, two to four nodes are predicted."""
    paper, readme = published.table("ddp_fig12_rr1"), published.table("pytorch_ddp_benchmark_readme").iloc[1:]
    columns = {
        "ResNet-50, NCCL (DDP paper)": (paper, "resnet50_nccl_s", 102e6),
        "ResNet-50, gloo (DDP paper)": (paper, "resnet50_gloo_s", 102e6),
        "ResNet-50 (DDP benchmark)": (readme, "resnet50_s_per_iter_p50", 102e6),
        "ResNet-101 (DDP benchmark)": (readme, "resnet101_s_per_iter_p50", 178e6),
        "ResNeXt-50 (DDP benchmark)": (readme, "resnext50_32x4d_s_per_iter_p50", 100e6),
        "ResNeXt-101 (DDP benchmark)": (readme, "resnext101_32x8d_s_per_iter_p50", 355e6),
    }
    all_errors = []
    for title, (table, column, gradient_bytes) in columns.items():
        gpus = table["gpus"].astype(float)
        frame = pd.DataFrame({"nodes": np.ceil(gpus / 8), "gpus": gpus, "local_batch": 32.0})
        frame = frame.assign(step_time_s=table[column].astype(float), gradient_bytes=gradient_bytes)
        known, scored = frame[frame["gpus"] <= 8], frame[frame["gpus"] > 8]
        errors = _three_errors(StepTimeModel.fit(known).predict(scored), known, scored)
        all_errors.append(errors)
        yield figure(f"step of {title}, fitted on 1-8 GPUs", "%", errors[:1], note=_beside(errors))
    ours, perfect, frozen = np.mean(all_errors, axis=0)
    note = f"{_beside((ours, perfect, frozen))}, which in four of them is right to the last digit printed"
    yield figure("the six tables above, mean", "%", [float(ours)], at_most=float(min(perfect, frozen)), note=note)


def _tables(quick: bool) -> Iterator[Row]:
    """The last number of GPUs of each table, predicted from the others."""
    rows = []
    for index, (_, table) in enumerate(published.throughputs()):
        if quick and index % 8:
            continue
        known, last = table.iloc[:-1], table.iloc[-1:]
        predicted = ThroughputModel.fit(known).predict(last)
        perfect, frozen = (last["gpus"] * (known["throughput"] / known["gpus"]).iloc[place] for place in (0, -1))
        errors = [
            float(_errors(each, last["throughput"]).iloc[0]) for each in (predicted["throughput"], perfect, frozen)
        ]
        rows.append([last["gpus"].iloc[0] > 8, *errors, _inside(predicted, last, "throughput")])
    scores = pd.DataFrame(rows, columns=["many", "model", "perfect", "frozen", "inside"])
    for many, part in scores.groupby("many"):
        ours, perfect, frozen = (_percent(part[name]) for name in ("model", "perfect", "frozen"))
        where = "more than 8 GPUs" if many else "up to 8 GPUs"
        note = f"{len(part)} tables; {_beside((ours, perfect, frozen))}"
        yield figure(f"throughput, last row of tables of {where}", "%", [ours], at_most=min(perfect, frozen), note=note)
    inside = float(scores["inside"].mean())
    yield figure("throughputs inside their 80 % interval", "%", [inside], at_least=COVERAGE[0], at_most=COVERAGE[1])


def _all_reduces() -> Iterator[Row]:
    """NCCL on 8 A100s: the sizes up to 256 MiB are known, up to 16 GiB are predicted."""
    table = published.table("nccl_a100x8")
    frame = pd.DataFrame({"bytes": table["bytes"], "seconds": table["time_us"] / 1e6, "ranks": 8})
    known, scored = frame[frame["bytes"] <= 2**28], frame[frame["bytes"] > 2**28]
    link = fit_link(known)
    predicted = all_reduce_seconds(scored["bytes"].to_numpy(), 8, Cluster(8, link, link), "ring")
    error = _percent(_errors(pd.Series(predicted, scored.index), scored["seconds"]))
    yield figure("NCCL all-reduce, larger sizes than fitted", "%", [error], at_most=5.0)


def _epochs() -> Iterator[Row]:
    """Epochs to a target at the upper half of the batch sizes, from the lower half."""
    mlperf = published.table("mlperf_rcp_epochs_vs_batch").rename(columns={"mean_epochs_or_samples": "epochs"})
    pollux = published.table("pollux_stat_eff_cifar10").rename(
        columns={"batch": "global_batch", "examples_to_end": "epochs"}
    )
    for title, table in {"ResNet-50 (MLPerf)": mlperf, "ResNet-18 (Pollux)": pollux}.items():
        sizes = table["global_batch"].drop_duplicates().sort_values()
        low = table["global_batch"] <= sizes.iloc[len(sizes) // 2 - 1]
        known, scored = table[low], table[~low]
        predicted = EpochsToTarget.fit(known).predict(scored)
        frozen = known.loc[known["global_batch"].idxmax(), "epochs"]
        error, naive = (_percent(_errors(each, scored["epochs"])) for each in (predicted["epochs"], frozen))
        inside = f"{_inside(predicted, scored, 'epochs'):.0f} % inside their 80 % interval"
        name = f"epochs of {title} at larger batches than fitted"
        yield figure(
            name, "%", [error], at_most=ERROR_OF_EPOCHS, note=f"as with the largest known {naive:.1f} %; {inside}"
        )


def _speed() -> Row:
    random = np.random.default_rng(0)
    nodes = random.integers(1, 512, CONFIGURATIONS)
    frame = pd.DataFrame({"nodes": nodes, "gpus": 8 * nodes, "local_batch": random.integers(1, 512, CONFIGURATIONS)})
    model = StepTimeModel.fit(published.steps("cifar10"))
    taken = []
    for _ in range(3):
        start = time.perf_counter()
        model.predict(frame)
        taken.append(time.perf_counter() - start)
    return figure(f"predicting {CONFIGURATIONS:,} configurations", "s", taken, at_most=1.0)


def _row(name: str, predicted: pd.DataFrame, known: pd.DataFrame, scored: pd.DataFrame, at_most: float) -> Row:
    errors = _three_errors(predicted, known, scored)
    return figure(name, "%", errors[:1], at_most=at_most, note=f"{len(scored)} steps; {_beside(errors)}")


def _three_errors(predicted: pd.DataFrame, known: pd.DataFrame, scored: pd.DataFrame) -> tuple[float, ...]:
    """In percent: the model's, and those of the two naive ones."""
    naive = (
        scored["local_batch"].map(_step_by_batch(known, gpus)) for gpus in (known["gpus"].min(), known["gpus"].max())
    )
    return tuple(_percent(_errors(each, scored["step_time_s"])) for each in (predicted["step_time_s"], *naive))


def _beside(errors: tuple[float, ...]) -> str:
    return f"perfect {errors[1]:.1f} %, frozen {errors[2]:.1f} %"


def _step_by_batch(known: pd.DataFrame, gpus: float) -> pd.Series[float]:
    return known[known["gpus"] == gpus].groupby("local_batch")["step_time_s"].mean()


def _errors(predicted: pd.Series[float] | float, measured: pd.Series[float]) -> pd.Series[float]:
    return (predicted / measured - 1).abs().dropna()


def _inside(predicted: pd.DataFrame, measured: pd.DataFrame, column: str = "step_time_s") -> float:
    return 100 * float(measured[column].between(predicted["low"], predicted["high"]).mean())


def _percent(errors: object) -> float:
    return 100 * float(np.mean(list(errors)))  # type: ignore[call-overload]
