"""stream-train as a user meets it: results, budgets, outputs, what is refused."""

import json
import re
import struct
import zlib

import numpy as np
import pytest
import scipy.sparse
import torch

from training import ENV, model_document, random_matrix, read_safetensors, steps_of

INPUT, OUTPUT = (14, 20), (16, 16)
M, N, SAMPLES = 280, 256, 7
UNET = ["--model", "unet", "--channels", "3,5", "--input-shape", "14x20"]
MODELS = {"unet": UNET, "mlp": ["--model", "mlp", "--hidden", "9"], "pixels": ["--model", "pixels"]}


@pytest.fixture
def problem(run, tmp_path):
    """a.tiles, x.npy; the arguments that every run has."""
    rng = np.random.default_rng(3)
    A = random_matrix(M, N, 12, 4)
    scipy.sparse.save_npz("a.npz", A)
    run("tile-convert", "--tile-size", 4096, "a.npz", "a.tiles")
    data = (A @ rng.random((N, SAMPLES), dtype=np.float32)).T.reshape(SAMPLES, *INPUT)
    np.save("x.npy", np.ascontiguousarray(data))
    return {"A": A, "x": data.reshape(SAMPLES, M),
            "args": ["--matrix", "a.tiles", "--data", "x.npy", "--threads", 2]}


@pytest.fixture
def train(run, problem):
    def call(*args, **more):
        return run("stream-train", *problem["args"], *args, env={**ENV, **more.pop("env", {})},
                   **more)

    return call


def summary_of(done):
    return json.loads(done.stdout)


@pytest.mark.heavy
def test_shepp_logan(run, record):
    run("tile-convert", "radon:180x128:128", "ct.tiles")
    run("ct-phantom", "shepp-logan:128", "head.npy")
    run("tile-apply", "--samples", "ct.tiles", "head.npy", "measured.npy")
    run("stream-train", "--matrix", "ct.tiles", "--data", "measured.npy", "--model", "pixels",
        "--steps", 500, "--predict", "image.npy", env=ENV, timeout=600)
    image, head = np.load("image.npy").reshape(128, 128), np.load("head.npy").reshape(128, 128)
    psnr = 10 * np.log10(head.max() ** 2 / np.mean((image - head) ** 2))
    record(2, "6b", "pixels on Shepp-Logan, radon:180x128:128, 500 steps", f"{psnr:.2f} dB")
    assert psnr >= 28


def test_log(train):
    done = train(*UNET, "--batch-size", 2, "--epochs", 2, "--log", "run.jsonl", "--json",
                 "--val", "x.npy")
    steps, summary = steps_of("run.jsonl")
    assert summary == summary_of(done)
    assert [s["step"] for s in steps] == list(range(1, 9))
    assert [s["epoch"] for s in steps] == [1] * 4 + [2] * 4
    assert [s["step"] for s in steps if "val_loss" in s] == [4, 8]
    fields = {"step", "epoch", "loss", "lr", "seconds", "read_bytes", "decoded_bytes",
              "read_seconds", "tiles_read", "tiles_resident", "device_peak_bytes",
              "host_peak_bytes"}
    for step in steps:
        assert step.keys() - {"val_loss"} == fields
        assert step["device_peak_bytes"] <= summary["device_budget"]
        assert step["host_peak_bytes"] <= summary["host_budget"]
    assert summary["steps"] == 8 and summary["last_loss"] == steps[-1]["loss"]
    assert summary["first_loss"] == steps[0]["loss"] and summary["val_loss"] == steps[-1]["val_loss"]
    assert summary["rows"] == M and summary["columns"] == N and summary["interrupted"] is False


def needed(text):
    return int(re.search(r"at least (\d+) bytes are needed", text).group(1))


@pytest.mark.parametrize("more", [[], ["--batch-size", 3], ["--recompute", "--val", "x.npy"],
                                  ["--pass", "two", "--optimizer", "sgd", "--preview", "p"]],
                         ids=lambda m: "_".join(map(str, m)) or "plain")
@pytest.mark.parametrize("model", MODELS)
def test_smallest_budgets(model, more, train):
    if model == "pixels" and "--val" in more:
        more = ["--recompute"]
    args = [*MODELS[model], *more, "--steps", 4]
    least = {}
    for option in ("--vram-budget", "--ram-budget"):
        done = train(*args, option, 1, code=2)
        least[option] = needed(done.stderr)
        parts = re.search(r"needed \((.*?)\);", done.stderr).group(1).split(", ")
        assert sum(int(part.rsplit(" ", 1)[1]) for part in parts) == least[option]
        train(*args, option, least[option] - 1, "--save", "no.safetensors", code=2)
    with pytest.raises(FileNotFoundError):
        open("no.safetensors", "rb")
    budgets = [word for pair in least.items() for word in pair]
    done = train(*args, *budgets, "--save", "tight.safetensors", "--json")
    assert summary_of(done)["device_peak_bytes"] <= least["--vram-budget"]
    assert summary_of(done)["host_peak_bytes"] <= least["--ram-budget"]
    train(*args, "--save", "wide.safetensors")
    assert open("tight.safetensors", "rb").read() == open("wide.safetensors", "rb").read()


def test_same_bits(train):
    """Whatever moves the tiles, and wherever the model's memory is."""
    args = [*UNET, "--steps", 6, "--batch-size", 3]
    train(*args, "--save", "a.safetensors")
    for more in (["--pass", "two"], ["--pass", "fused"], ["--io", "pread"], ["--recompute"],
                 ["--model-budget", "1M"], ["--model-budget", "1M", "--vram-budget", "4M"], []):
        train(*args, *more, "--save", "b.safetensors")
        assert open("a.safetensors", "rb").read() == open("b.safetensors", "rb").read(), more


def test_model_budget(train):
    least = needed(train(*UNET, "--model-budget", 1, code=2).stderr)
    summary = summary_of(train(*UNET, "--model-budget", least, "--json"))
    assert summary["model_budget"] == least and summary["model_peak_bytes"] <= least


def module_of(model):
    names = model_document()
    made = {"unet": lambda: names["UNet"]([3, 5], INPUT, OUTPUT),
            "mlp": lambda: names["MLP"]([M, 9, N]),
            "pixels": lambda: names["Pixels"](SAMPLES, N)}
    return made[model]()


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("batch", [1, 3])
def test_predict(model, batch, train, problem):
    args = [*MODELS[model], "--batch-size", batch]
    train(*args, "--steps", 5, "--save", "net.safetensors", "--predict", "a.npy")
    done = train(*args, "--init", "net.safetensors", "--steps", 0, "--predict", "b.npy", "--json")
    assert summary_of(done)["tiles_read"] == 0
    module = module_of(model)
    module.load_state_dict(read_safetensors("net.safetensors")[0])
    with torch.no_grad():
        x = torch.arange(SAMPLES) if model == "pixels" else torch.from_numpy(problem["x"])
        expected = module(x).numpy()
    for name in ("a.npy", "b.npy"):
        got = np.load(name)
        assert got.shape == (SAMPLES, N) and got.dtype == np.float32
        assert np.abs(got - expected).max() <= 1e-5 * np.abs(expected).max()


@pytest.mark.parametrize("loss", ["mse", "l1", "huber"])
def test_validation(loss, train, problem):
    val = np.ascontiguousarray(problem["x"][:5] * np.float32(0.7))
    np.save("val.npy", val)
    rows = np.random.default_rng(0).integers(0, 3, M).astype(np.uint8)
    np.save("w.npy", rows)
    args = [*UNET, "--batch-size", 2, "--steps", 0, "--loss", loss, "--weights", "w.npy"]
    done = train(*args, "--val", "val.npy", "--save", "net.safetensors", "--json")
    module = module_of("unet").double()
    module.load_state_dict(read_safetensors("net.safetensors")[0])
    with torch.no_grad():
        X = module(torch.from_numpy(val).double()).numpy()
    d = X @ problem["A"].astype(np.float64).T - val
    entry = {"mse": d * d, "l1": np.abs(d),
             "huber": np.where(np.abs(d) <= 1, d * d / 2, np.abs(d) - 0.5)}[loss]
    expected = (entry @ rows).mean() / rows.sum()
    assert summary_of(done)["val_loss"] == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("dtype", ["u1", "u2", "f8", "f4"])
def test_types(dtype, train):
    data = np.random.default_rng(8).integers(0, 200, (SAMPLES, M))
    np.save("x.npy", data.astype("f4"))
    train(*UNET, "--steps", 3, "--save", "a.safetensors")
    np.save("x.npy", data.astype(dtype).reshape(SAMPLES, 2, M // 2))
    train(*UNET, "--steps", 3, "--save", "b.safetensors")
    assert open("a.safetensors", "rb").read() == open("b.safetensors", "rb").read()


def test_single_sample(train, problem):
    for shape in ((M,), (1, M), INPUT):
        np.save("x.npy", problem["x"][0].reshape(shape))
        assert summary_of(train(*UNET, "--steps", 2, "--json"))["samples"] == 1


def test_dead_detectors(train, problem):
    """Where the weight is 0 the data may be NaN; elsewhere they may not."""
    rows = np.ones(M, np.float32)
    rows[5:9] = 0
    dead = np.array(problem["x"], order="C")
    dead[:, 5:9] = np.nan
    np.save("w.npy", rows)
    np.save("x.npy", dead)
    done = train(*UNET, "--steps", 1, code=1)
    assert re.search(r"sample \d, entry 5: not a finite number", done.stderr)
    train(*UNET, "--steps", 9, "--weights", "w.npy", "--save", "a.safetensors")
    dead[:, 5:9] = 0
    np.save("x.npy", dead)
    train(*UNET, "--steps", 9, "--weights", "w.npy", "--save", "b.safetensors")
    assert open("a.safetensors", "rb").read() == open("b.safetensors", "rb").read()
    rows[3] = -1
    np.save("w.npy", rows)
    assert "entry 3" in train(*UNET, "--weights", "w.npy", code=1).stderr


@pytest.mark.heavy
def test_more_data_than_memory(run, tmp_path):
    samples, rows = 300, 60000  # 72 MB
    scipy.sparse.save_npz("a.npz", random_matrix(rows, 50, 1, 9))
    run("tile-convert", "a.npz", "a.tiles")
    data = np.lib.format.open_memmap("x.npy", "w+", "<f4", (samples, rows))
    data[:] = np.arange(samples, dtype=np.float32)[:, None] / samples
    data.flush()
    done = run("stream-train", "--matrix", "a.tiles", "--data", "x.npy", "--model", "mlp", "--hidden",
               4, "--ram-budget", "6M", "--vram-budget", "8M", "--json", env=ENV)
    summary = summary_of(done)
    assert summary["steps"] == samples
    assert summary["process_peak_bytes"] < (6 + 8 + 40) << 20


def read_png(path):
    raw = open(path, "rb").read()
    assert raw[:8] == b"\x89PNG\r\n\x1a\n"
    at, data, texts = 8, b"", {}
    while at < len(raw):
        size, kind = struct.unpack(">I4s", raw[at : at + 8])
        body = raw[at + 8 : at + 8 + size]
        if kind == b"IHDR":
            width, height = struct.unpack(">II", body[:8])
        elif kind == b"IDAT":
            data += body
        elif kind == b"tEXt":
            key, value = body.split(b"\0")
            texts[key.decode()] = float(value)
        at += size + 12
    lines = np.frombuffer(zlib.decompress(data), np.uint8).reshape(height, width + 1)
    return (height, width), lines, texts


def test_preview(train, problem, tmp_path):
    train(*UNET, "--steps", 4, "--save", "net.safetensors", "--checkpoint-every", 2, "--preview",
          "pictures", "--predict", "f.npy", "--batch-size", 3)
    names = {path.name for path in (tmp_path / "pictures").iterdir()}
    kinds = {"input": INPUT, "output": OUTPUT, "projection": INPUT, "residual": INPUT}
    assert names == {f"step-{step:06}-{kind}.png" for step in (2, 4) for kind in kinds}
    ranges = {}
    for kind, shape in kinds.items():
        size, _, ranges[kind] = read_png(f"pictures/step-000004-{kind}.png")
        assert size == shape
    projection = problem["A"] @ np.load("f.npy")[0]
    assert ranges["projection"]["maximum"] == pytest.approx(projection.max(), rel=1e-4)
    residual = np.abs(projection - problem["x"][0]).max()
    assert ranges["residual"]["maximum"] == pytest.approx(residual, rel=1e-4)
    assert ranges["residual"]["minimum"] == -ranges["residual"]["maximum"]


def test_memory_report(train):
    summary = summary_of(train(*UNET, "--steps", 3, "--memory-report", "--json"))
    assert summary["memory"].keys() == {"forward", "loss", "backward", "optimizer"}
    for phase in summary["memory"].values():
        for when in ("before", "after", "highest"):
            assert 0 < phase[when]["matrix_device"] <= summary["device_budget"]
            assert 0 < phase[when]["host"] <= summary["host_budget"]
            assert 0 < phase[when]["process"] <= summary["process_peak_bytes"] + (1 << 20)
    text = train(*UNET, "--steps", 3, "--memory-report").stdout
    assert len(re.findall(r"^(?:forward|loss|backward|optimizer) +(?:before|after|highest)", text,
                          re.M)) == 12


@pytest.mark.parametrize("args, words", [
    (["--input-shape", "14x21"], "must be 280"),
    (["--output-shape", "10x10"], "must be 256"),
    (["--channels", "1,2,3,4,5,6"], "at least 32x32"),
    (["--channels", "0"], "--channels"),
    (["--hidden", "4"], "belongs to --model mlp"),
    (["--model", "mlp", "--channels", "4"], "belongs to --model unet"),
    (["--momentum", "0.5"], "belongs to --optimizer sgd"),
    (["--data", "none.npy"], "none.npy"),
    (["--target", "short.npy"], "has 3 samples"),
    (["--weights", "short.npy"], "give (M,) or (n, M)"),
    (["--val", "x.npy", "--target", "x.npy"], "--val-target"),
    (["--val-target", "x.npy"], "belong to --val"),
    (["--model", "pixels", "--val", "x.npy"], "--val"),
    (["--init", "a.npz", "--resume", "a.npz"], "exclude"),
    (["--checkpoint-every", "3"], "needs --save"),
    (["--batch-size", "0"], "--batch-size"),
    (["--lr", "0"], "--lr"),
    (["--model-device", "gpu"], "--model-device gpu"),
    (["--matrix-device", "gpu"], "gpu"),
    (["--optimizer", "lion"], "lion"),
])
def test_refused(args, words, train):
    np.save("short.npy", np.ones((3, M), np.float32))
    if args[0] == "--data":
        # the fixture gives --data first; a repeated option is refused as such
        done = train(*args, code=2)
        assert "--data" in done.stderr
        return
    assert words in train(*args, code=2).stderr


@pytest.mark.parametrize("args, words", [
    (["--init", "a.npz"], "not a safetensors file"),
    (["--init", "x.safetensors"], "none of this model's"),
    (["--save", "nowhere/net.safetensors"], "nowhere"),
    (["--predict", "nowhere/f.npy"], "nowhere"),
    (["--log", "nowhere/run.jsonl"], "nowhere"),
    (["--preview", "nowhere/pictures"], "nowhere"),
])
def test_fails_before_training(args, words, train):
    train("--model", "mlp", "--hidden", 4, "--steps", 0, "--save", "x.safetensors")
    done = train(*args, "--steps", 1, code=1)
    assert words in done.stderr


def test_loss_not_finite(train):
    train("--model", "mlp", "--steps", 2, "--save", "net.safetensors")
    before = open("net.safetensors", "rb").read()
    args = ["--model", "mlp", "--optimizer", "sgd", "--save", "net.safetensors", "--epochs", 50]
    done = train(*args, "--lr", "1e20", code=1)
    assert re.search(r"step \d+: the (loss|gradients)", done.stderr)
    assert open("net.safetensors", "rb").read() == before
    done = train("--model", "mlp", "--loss", "poisson", code=1)
    assert "poisson needs A*f(x) above 0" in done.stderr
