"""Wrong requests that once destroyed an input, crashed, or failed only when all work was done."""

import resource

import numpy as np
import pytest
import scipy.sparse

from training import random_matrix, read_safetensors, write_safetensors

M, N = 64, 100


@pytest.fixture
def train(run):
    scipy.sparse.save_npz("a.npz", random_matrix(M, N, 20, 4))
    run("tile-convert", "a.npz", "a.tiles")
    np.save("x.npy", np.random.default_rng(3).random((4, M), dtype=np.float32))

    def call(*args, **more):
        steps = () if "--steps" in args else ("--steps", 2)
        return run("stream-train", "--matrix", "a.tiles", "--data", "x.npy", "--threads", 2, *steps,
                   *args, **more)

    return call


def content(*paths):
    return [open(path, "rb").read() for path in paths]


@pytest.mark.parametrize("option", ["--save", "--predict", "--dump-gradients", "--log"])
@pytest.mark.parametrize("name", ["x.npy", "./x.npy", "link.npy", "a.tiles"])
def test_output_is_an_input(train, tmp_path, option, name):
    (tmp_path / "link.npy").symlink_to("x.npy")
    before = content("x.npy", "a.tiles")
    done = train("--model", "pixels", option, name, code=2)
    assert "give another name" in done.stderr
    assert content("x.npy", "a.tiles") == before


def test_two_outputs_of_one_name(train, tmp_path):
    train("--model", "pixels", "--save", "new", "--log", "./new", code=2)
    assert not (tmp_path / "new").exists()


def test_checkpoint_replaces_the_one_it_began_with(train):
    train("--model", "mlp", "--hidden", 3, "--save", "net.safetensors")
    train("--model", "mlp", "--hidden", 3, "--save", "net.safetensors", "--init", "net.safetensors")
    train("--model", "mlp", "--hidden", 3, "--save", "net.safetensors", "--resume",
          "net.safetensors")
    train("--model", "mlp", "--hidden", 3, "--predict", "net.safetensors", "--resume",
          "net.safetensors", code=2)


@pytest.mark.parametrize("output", ["in.npy", "a.tiles"])
def test_apply_onto_its_input(train, run, output):
    np.save("in.npy", np.ones(N, np.float32))
    before = content("in.npy", "a.tiles")
    run("tile-apply", "a.tiles", "in.npy", output, code=2)
    assert content("in.npy", "a.tiles") == before


@pytest.mark.parametrize("model", ["unet", "mlp", "pixels"])
@pytest.mark.parametrize("option", ["--input-shape", "--output-shape"])
@pytest.mark.parametrize("shape", ["3x3", "1x100000000", "4294967296x4294967297"])
def test_shape_that_does_not_fit(train, model, option, shape):
    done = train("--model", model, option, shape, "--preview", "pictures", code=2)
    assert f"{option} {shape} does not fit" in done.stderr


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (0, 0)])
@pytest.mark.parametrize("model", ["unet", "mlp"])
def test_nothing_for_a_net(run, shape, model):
    scipy.sparse.save_npz("a.npz", scipy.sparse.csr_matrix(shape))
    run("tile-convert", "a.npz", "a.tiles")
    np.save("x.npy", np.zeros((2, shape[0]), np.float32))
    done = run("stream-train", "--matrix", "a.tiles", "--data", "x.npy", "--model", model, code=2)
    assert f"a matrix of {shape[0]} x {shape[1]}" in done.stderr


def test_preview_is_known_to_fail_before_the_first_step(train, tmp_path):
    train("--model", "pixels", "--preview", "x.npy", "--log", "run.jsonl", code=1)
    assert not (tmp_path / "run.jsonl").exists()


def test_picture_that_is_too_wide(run):
    wide = 1000003
    scipy.sparse.save_npz("a.npz", scipy.sparse.csr_matrix(([1.0], ([0], [7])), (4, wide)))
    run("tile-convert", "a.npz", "a.tiles")
    np.save("x.npy", np.zeros((1, 4), np.float32))
    done = run("stream-train", "--matrix", "a.tiles", "--data", "x.npy", "--model", "pixels",
               "--steps", 1, "--preview", "pictures", code=2)
    assert "--output-shape" in done.stderr


MLP = ["--model", "mlp", "--hidden", 3]


def with_nan(path, name, to="nan.safetensors"):
    """A copy of the weights alone, of which `name` begins with NaN."""
    tensors, _ = read_safetensors(path)
    weights = {key: value for key, value in tensors.items() if not key.startswith("optimizer.")}
    weights[name].view(-1)[0] = float("nan")
    write_safetensors(to, weights)


def test_weights_that_are_not_finite(train, tmp_path):
    """A NaN behind a ReLU may never reach the loss."""
    train(*MLP, "--save", "net.safetensors")
    with_nan("net.safetensors", "layers.0.weight")
    for more in (["--steps", 1], ["--steps", 0, "--predict", "p.npy"]):
        options = [*MLP, "--init", "nan.safetensors", *more]
        done = train(*options, code=1)
        assert "layers.0.weight: holds NaN or infinity" in done.stderr
    raw = bytearray((tmp_path / "net.safetensors").read_bytes())
    raw[-4:] = np.float32(np.inf).tobytes()
    (tmp_path / "net.safetensors").write_bytes(raw)
    done = train(*MLP, "--resume", "net.safetensors", "--steps", 3, code=1)
    assert "optimizer." in done.stderr and "holds NaN or infinity" in done.stderr


def test_update_that_overflows(train, tmp_path):
    """The loss of the last step is finite, the weights behind it are not."""
    train("--model", "pixels", "--save", "net.safetensors")
    before = content("net.safetensors")
    np.save("x.npy", np.full((4, M), 3e38, np.float32))
    done = train("--model", "pixels", "--optimizer", "sgd", "--lr", 1e30, "--save",
                 "net.safetensors", "--predict", "p.npy", code=1)
    assert "not written" in done.stderr or "loss" in done.stderr
    assert content("net.safetensors") == before and not (tmp_path / "p.npy").exists()


@pytest.mark.parametrize("args", [["tile-convert", "a.npz", "new"],
                                  ["tile-apply", "a.tiles", "in.npy", "new"],
                                  ["ct-phantom", "ellipses:4:64", "new"]], ids=lambda a: a[0])
def test_file_size_limit(train, run, tmp_path, args):
    """Beyond `ulimit -f` the system sends a signal that kills, unless it is ignored."""
    np.save("in.npy", np.ones((N, 50), np.float32))
    run(*args, code=1, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000)))
    assert not (tmp_path / "new").exists()
