"""stream-train against the same training in PyTorch (float64, its sparse CSR product)."""

import itertools

import numpy as np
import pytest
import scipy.sparse
import torch

from training import (ENV, model_document, random_matrix, read_safetensors, steps_of,
                      write_safetensors)

DOCUMENT = model_document()
INPUT, OUTPUT = (13, 18), (12, 11)
M, N = INPUT[0] * INPUT[1], OUTPUT[0] * OUTPUT[1]
SAMPLES, STEPS = 7, 30
CHANNELS, HIDDEN = [4, 6, 8], [20, 12]
GRADIENT_BOUND, LOSS_BOUND = 1e-5, 1e-5


def make_module(model):
    if model == "unet":
        return DOCUMENT["UNet"](CHANNELS, INPUT, OUTPUT)
    if model == "mlp":
        return DOCUMENT["MLP"]([M, *HIDDEN, N])
    return DOCUMENT["Pixels"](SAMPLES, N)


def model_options(model):
    more = {"unet": ["--channels", ",".join(map(str, CHANNELS)), "--input-shape", "13x18",
                     "--output-shape", "12x11"],
            "mlp": ["--hidden", ",".join(map(str, HIDDEN))],
            "pixels": []}
    return ["--model", model, *more[model]]


def entry_loss(kind, y, t):
    d = y - t
    if kind == "mse":
        return d * d
    if kind == "l1":
        return d.abs()
    if kind == "huber":
        return torch.where(d.abs() <= 1, d * d / 2, d.abs() - 0.5)
    return y - t * torch.log(y + 1e-8)


def clipped_rate(case, i, lr):
    warmup = case.get("warmup", 0)
    if i < warmup:
        return lr * (i + 1) / warmup
    if case.get("schedule") == "cosine":
        return lr / 2 * (1 + np.cos(np.pi * (i - warmup) / (STEPS - warmup)))
    return lr


def train_in_torch(case, module, A, data, target, weights):
    """Gradients of the first step, losses of all."""
    options = {"lr": case["lr"], "weight_decay": case.get("weight_decay", 0)}
    if case["optimizer"] == "adam":
        optimizer = torch.optim.Adam(module.parameters(), **options)
    else:
        optimizer = torch.optim.SGD(module.parameters(), momentum=case.get("momentum", 0), **options)
    batch = case.get("batch", 1)
    batches = itertools.chain.from_iterable(
        [order[i : i + batch] for i in range(0, SAMPLES, batch)]
        for order in (DOCUMENT["sample_order"](SAMPLES, 5, epoch) for epoch in itertools.count()))
    first, losses = None, []
    for i, numbers in zip(range(STEPS), batches):
        for group in optimizer.param_groups:
            group["lr"] = clipped_rate(case, i, case["lr"])
        optimizer.zero_grad()
        pixels = case["model"] == "pixels"
        X = module(torch.tensor(numbers) if pixels else data[numbers])
        Y = (A @ X.T).T
        w = torch.ones_like(Y) if weights is None else weights[numbers]
        kept = w > 0
        loss = (w * entry_loss(case["loss"], Y, target[numbers]))[kept].sum() / w.sum()
        loss.backward()
        if first is None:
            first = {name: p.grad.clone() for name, p in module.named_parameters()}
        if case.get("clip"):
            torch.nn.utils.clip_grad_norm_(module.parameters(), case["clip"])
        optimizer.step()
        losses.append(loss.item())
    return first, losses


BASE = [{"model": model, "loss": loss, "optimizer": optimizer}
        for model in ("unet", "mlp", "pixels")
        for loss in ("mse", "l1", "huber", "poisson")
        for optimizer in ("adam", "sgd")]
MORE = [
    {"model": "unet", "weight_decay": 0.1},
    {"model": "unet", "optimizer": "sgd", "weight_decay": 0.1, "momentum": 0.9},
    {"model": "unet", "clip": 0.01},
    {"model": "unet", "optimizer": "sgd", "clip": 0.5, "momentum": 0.5},
    {"model": "unet", "weights": "rows"},
    {"model": "unet", "weights": "samples", "batch": 3},
    {"model": "unet", "recompute": True},
    {"model": "unet", "recompute": True, "batch": 4, "weight_decay": 0.01},
    {"model": "unet", "batch": 3, "target": True, "loss": "huber"},
    {"model": "unet", "warmup": 5, "schedule": "cosine", "pass": "two"},
    {"model": "unet", "optimizer": "sgd", "warmup": 3, "schedule": "constant", "pass": "fused"},
    {"model": "mlp", "weights": "rows", "clip": 0.1, "weight_decay": 0.05},
    {"model": "mlp", "batch": 7, "recompute": True},
    {"model": "mlp", "optimizer": "sgd", "momentum": 0.9, "batch": 2, "weights": "samples"},
    {"model": "pixels", "batch": 3, "weight_decay": 0.1},
    {"model": "pixels", "optimizer": "sgd", "momentum": 0.9, "weights": "rows"},
    {"model": "pixels", "batch": 7, "weights": "samples", "clip": 0.2, "target": True},
]
CASES = [{"loss": "mse", "optimizer": "adam", "lr": 1e-4, **case} for case in BASE + MORE]


def label(case):
    return "-".join(f"{key}={value}" for key, value in case.items() if key != "lr")


@pytest.fixture(scope="module")
def problem(tmp_path_factory):
    """A matrix as tiles, samples, targets, weights with NaN where they are 0."""
    import subprocess

    from conftest import command

    folder = tmp_path_factory.mktemp("problem")
    rng = np.random.default_rng(1)
    A = random_matrix(M, N, 9, 2)
    scipy.sparse.save_npz(folder / "a.npz", A)
    subprocess.run(command("tile-convert", "--tile-size", 4096, folder / "a.npz", folder / "a.tiles"),
                   check=True, capture_output=True)
    truth = rng.random((SAMPLES, N), dtype=np.float32) + 0.2
    data = np.ascontiguousarray((A @ truth.T).T, dtype=np.float32) + np.float32(0.01)
    target = data * (0.8 + 0.4 * rng.random((SAMPLES, M), dtype=np.float32))
    rows = rng.integers(0, 4, M).astype(np.float32)
    samples = rng.integers(0, 3, (SAMPLES, M)).astype(np.float32) / 2
    for name, array in {"data": data, "target": target, "rows": rows, "samples": samples}.items():
        np.save(folder / f"{name}.npy", array)
    return {"folder": folder, "A": A, "data": data, "target": target, "rows": rows,
            "samples": samples}


def options_of(case, problem):
    folder = problem["folder"]
    args = ["--matrix", folder / "a.tiles", "--data", folder / "data.npy", "--seed", 5,
            "--loss", case["loss"], "--optimizer", case["optimizer"], "--lr", case["lr"],
            "--batch-size", case.get("batch", 1), "--threads", 2, *model_options(case["model"])]
    for key, option in (("weight_decay", "--weight-decay"), ("clip", "--clip-norm"),
                        ("momentum", "--momentum"), ("schedule", "--schedule"),
                        ("warmup", "--warmup-steps"), ("pass", "--pass")):
        if key in case:
            args += [option, case[key]]
    if case.get("weights"):
        args += ["--weights", folder / f"{case['weights']}.npy"]
    if case.get("target"):
        args += ["--target", folder / "target.npy"]
    return args + (["--recompute"] if case.get("recompute") else [])


def torch_problem(case, problem):
    A = torch.sparse_csr_tensor(problem["A"].indptr, problem["A"].indices,
                                torch.from_numpy(problem["A"].data).double(), (M, N))
    data = torch.from_numpy(problem["data"]).double()
    target = torch.from_numpy(problem["target"]).double() if case.get("target") else data
    weights = None
    if case.get("weights"):
        weights = torch.from_numpy(problem[case["weights"]]).double().expand(SAMPLES, M)
    return A, data, target, weights


@pytest.mark.parametrize("case", CASES, ids=label)
def test_same_training(case, problem, run):
    args = options_of(case, problem)
    run("stream-train", *args, "--steps", 0, "--save", "begin.safetensors", env=ENV)
    tensors, _ = read_safetensors("begin.safetensors")
    if case["loss"] == "poisson":  # A*f(x) must be positive
        last = {"unet": "last.bias", "mlp": "layers.2.bias", "pixels": "image"}[case["model"]]
        tensors[last] += 1.0
    write_safetensors("begin.safetensors", tensors)
    run("stream-train", *args, "--steps", STEPS, "--init", "begin.safetensors", "--log", "run.jsonl",
        "--dump-gradients", "gradients.safetensors", env=ENV)
    module = make_module(case["model"])
    module.load_state_dict(tensors)
    first, losses = train_in_torch(case, module.double(), *torch_problem(case, problem))
    ours, _ = read_safetensors("gradients.safetensors")
    assert ours.keys() == first.keys()
    for name, gradient in first.items():
        error = (ours[name].double() - gradient).norm() / gradient.norm()
        assert error <= GRADIENT_BOUND, f"{name}: {error:.2e}"
    steps, _ = steps_of("run.jsonl")
    got = np.array([step["loss"] for step in steps])
    assert len(got) == STEPS and got[-1] != got[0]
    error = np.max(np.abs(got - losses) / np.abs(losses))
    assert error <= LOSS_BOUND, f"losses differ by {error:.2e}"
