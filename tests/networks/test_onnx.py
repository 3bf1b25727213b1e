"""Networks from ONNX files: outputs of the reference, bounds that hold, clear errors."""

from __future__ import annotations

import gzip
import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")
onnx = pytest.importorskip("onnx")
from onnx import helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402
from torch import nn  # noqa: E402

import taut  # noqa: E402
import taut.networks as tt  # noqa: E402
from tests.helpers.onnx_files import by_hand, exported  # noqa: E402


class Then(nn.Module):
    """Modules one after another, then something of their output."""

    def __init__(self, last, *parts):
        super().__init__()
        self.parts, self.last = nn.Sequential(*parts), last

    def forward(self, x):
        return self.last(self.parts(x))


class WrittenAttention(nn.Module):
    """Attention written out: one linear map for all three, a causal mask, a class token."""

    def __init__(self, width, heads, tokens):
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.first = nn.Parameter(torch.randn(1, 1, width))
        self.last = nn.Parameter(torch.randn(1, 2, width))
        hidden = torch.ones(tokens + 3, tokens + 3).triu(1) * torch.finfo(torch.float32).min
        self.register_buffer("hidden", hidden)

    def forward(self, x):
        first, last = (each.expand(len(x), -1, -1) for each in (self.first, self.last))
        x = torch.cat((first, x, last), 1)
        batch, tokens, width = x.shape
        split = self.qkv(x).reshape(batch, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        q, k, v = split[0], split[1], split[2]
        weights = ((q * 0.3) @ k.transpose(-1, -2) / 1.7 + self.hidden).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).reshape(batch, tokens, width))[:, -1]


class RmsNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.gain = nn.Parameter(torch.randn(width))

    def forward(self, x):
        return self.gain * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-3))


class Gate(nn.Module):
    """A gated MLP, as in language models of today."""

    def __init__(self, width, hidden):
        super().__init__()
        self.gate, self.value, self.down = (
            nn.Linear(*size) for size in ((width, hidden), (width, hidden), (hidden, width))
        )

    def forward(self, x):
        return self.down(nn.functional.silu(self.gate(x)) * self.value(x))


class RotaryAttention(nn.Module):
    """Queries and keys turned by their position, keys and values shared by two heads each."""

    def __init__(self, width, tokens, sine_first):
        super().__init__()
        self.q, self.k, self.v = (
            nn.Linear(width, size) for size in (width, width // 2, width // 2)
        )
        angle = torch.arange(tokens)[:, None] * torch.tensor([1.0, 0.1]).repeat(2)
        self.register_buffer("cos", angle.cos())
        self.register_buffer("sin", angle.sin())
        self.sine_first = sine_first

    def turned(self, x):
        left, right = x.chunk(2, -1)
        parts = torch.cat((-right, left), -1) * self.sin, x * self.cos
        return parts[0] + parts[1] if self.sine_first else parts[1] + parts[0]

    def forward(self, x):
        batch, tokens, width = x.shape
        q, k, v = (
            f(x).reshape(batch, tokens, -1, 4).transpose(1, 2) for f in (self.q, self.k, self.v)
        )
        q, k = self.turned(q), self.turned(k)
        k, v = (each[:, :, None].expand(-1, -1, 2, -1, -1).flatten(1, 2) for each in (k, v))
        return (
            (((q @ k.transpose(-1, -2)) / 2).softmax(-1) @ v)
            .transpose(1, 2)
            .reshape(batch, tokens, width)
        )


def causal(x):
    """Attention of tokens to those before them, without maps of its own."""
    later = torch.ones(x.shape[1], x.shape[1]).triu(1).bool()
    return (x @ x.transpose(1, 2)).masked_fill(later, -torch.inf).softmax(-1) @ x


def layer(**options):
    return nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0, **options)


CASES = {
    "gelu": (lambda: nn.Sequential(nn.Linear(5, 8), nn.GELU(), nn.Linear(8, 3)), (5,)),
    "functions": (
        lambda: nn.Sequential(
            nn.Linear(5, 8), nn.GELU("tanh"), nn.Linear(8, 6), nn.SiLU(), nn.Linear(6, 5),
            nn.Tanh(), nn.Sigmoid(), nn.Linear(5, 4), nn.Softplus(), nn.ELU(0.5),
            nn.LeakyReLU(0.2), nn.Linear(4, 3),
        ), (5,),
    ),
    "image": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 4, 3, padding=1, stride=2), nn.BatchNorm2d(4), nn.ReLU(),
            nn.Conv2d(4, 6, 2, groups=2), nn.ELU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(6, 3),
        ), (3, 8, 7),
    ),
    "sequence": (
        lambda: nn.Sequential(
            nn.Conv1d(3, 4, 3, dilation=2, padding=(2,)), nn.BatchNorm1d(4), nn.ReLU(),
            nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(4, 3),
        ), (3, 6),
    ),
    "encoder": (lambda: Then(lambda y: y.mean(1), layer()), (5, 8)),
    "encoder, norms first": (
        lambda: Then(lambda y: y[:, 1:3], layer(norm_first=True, activation="gelu"),
                     nn.LayerNorm(8), nn.Linear(8, 3)), (5, 8),
    ),
    "attention written out": (lambda: WrittenAttention(6, 2, 3), (3, 6)),
    "rms norm": (lambda: nn.Sequential(nn.Linear(4, 6), RmsNorm(6), nn.Linear(6, 2)), (3, 4)),
    "centred": (lambda: Then(lambda y: y - y.mean(-1, keepdim=True), nn.Linear(4, 6)), (3, 4)),
    "centred, another factor": (
        lambda: Then(lambda y: 2 * y - y.mean(-1, keepdim=True), nn.Linear(4, 6)), (3, 4),
    ),
    "scaled norm": (lambda: Then(lambda y: nn.functional.layer_norm(3 * y, (6,)), nn.Linear(4, 6)),
                    (3, 4)),
    "gate": (lambda: nn.Sequential(nn.Linear(4, 6), Gate(6, 9), nn.Linear(6, 2)), (3, 4)),
    "gates of tokens": (lambda: Then(lambda y: y * y[:, :1].relu(), nn.Linear(4, 6)), (3, 4)),
    "rotary positions": (lambda: nn.Sequential(nn.Linear(5, 16), RotaryAttention(16, 3, False)),
                         (3, 5)),
    "rotary positions, sines first": (
        lambda: nn.Sequential(RotaryAttention(16, 3, True), Gate(16, 8)), (3, 16),
    ),
    "largest": (
        lambda: nn.Sequential(
            nn.Conv2d(2, 3, 2), nn.MaxPool2d(3, stride=2, padding=1), nn.ELU(),
            nn.Conv2d(3, 4, 2), nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(4, 3),
        ), (2, 7, 6),
    ),
    "largest of a sequence": (
        lambda: nn.Sequential(nn.MaxPool1d(2, 1, dilation=2), nn.Flatten(), nn.Linear(6, 3)),
        (2, 5),
    ),
    "hidden scores": (lambda: Then(causal, nn.Linear(4, 6)), (3, 4)),
    "joined": (
        lambda: Then(lambda y: torch.cat((y[:, :1], 2 - y.relu(), -y / 3), 1), nn.Linear(4, 4)),
        (2, 4),
    ),
    "mixed tokens": (
        lambda: Then(lambda y: torch.ones(2, 3) @ y * torch.tensor([1.0, 2, 3, 4]),
                     nn.Linear(4, 4), nn.ReLU()), (3, 4),
    ),
}  # fmt: skip


@pytest.fixture(params=CASES, ids=lambda name: name.replace(" ", "_"))
def case(request, tmp_path):
    torch.manual_seed(len(request.param))
    make, shape = CASES[request.param]
    net = make().eval()
    for module in net.modules():
        if isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d)):
            with torch.no_grad():
                module.running_mean.normal_()
                module.running_var.uniform_(0.5, 2)
                module.weight.normal_()
    opset = 20 if request.param == "functions" else 17
    return net, torch.randn(2, *shape), exported(net, torch.randn(1, *shape), tmp_path / "n.onnx",
                                                 opset)  # fmt: skip


def test_outputs_are_those_of_the_reference_and_bounds_hold(case):
    net, x, path = case
    read = tt.read_onnx(path)
    reference = ReferenceEvaluator(str(path))
    for one in x:
        wanted = reference.run(None, {"x": one[None].numpy()})[0]
        np.testing.assert_allclose(read(one[None]).numpy(), wanted, rtol=2e-4, atol=2e-5)
    torch.testing.assert_close(read(x), net(x).detach(), rtol=2e-4, atol=2e-5)
    certificate = tt.certify(read, x)
    assert (certificate.bound.upper >= certificate.measured.lower * (1 - 1e-6)).all()
    exact = read.double()
    for norm in (1, 2, math.inf):
        radius = 0.02
        found = tt.propagate(exact, taut.At(x.double(), radius), norm=norm)
        assert not found.constants  # every operation has affine bounds
        assert np.isfinite(found.bound.upper).all()
        noise = torch.randn(400, *x.shape, dtype=torch.float64)
        size = torch.linalg.vector_norm(noise.flatten(2), ord=norm, dim=-1)
        moved = x + noise * (radius / size).reshape(400, 2, *[1] * (x.ndim - 1))
        out = exact(moved.flatten(0, 1)).reshape(400, 2, -1).numpy()
        assert (out <= found.bound.upper).all()
        assert (out >= found.bound.lower).all()


def test_the_bounds_are_those_of_the_module_itself(tmp_path):
    """A rule of its own for the module gives the same numbers."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 8), layer(), nn.Linear(8, 3))
    x = torch.randn(1, 4, 8)
    read = tt.read_onnx(exported(net, x, tmp_path / "n.onnx"))
    one, other = (
        tt.propagate(m.double(), taut.At(x.double(), 0.1), norm=2).bound for m in (net, read)
    )
    np.testing.assert_allclose(one.upper, other.upper, rtol=1e-6)  # epsilon is in float32


@pytest.mark.parametrize("opset", [9, 13])
def test_old_and_new_forms_of_an_operation(opset, tmp_path):
    """Before opset 13, axes are attributes; afterwards inputs."""
    w = np.random.default_rng(0).normal(size=(3, 3)).astype(np.float32)
    axes = {"axes": [1]} if opset < 13 else {}
    extra = [] if opset < 13 else ["one"]
    weights = {} if opset < 13 else {"one": np.array([1])}
    nodes = [
        helper.make_node("Unsqueeze", ["x", *extra], ["u"], **axes),
        helper.make_node("MatMul", ["u", "w"], ["m"]),
        helper.make_node("Squeeze", ["m", *extra], ["s"], **axes),
        helper.make_node("Relu", ["s"], ["y"]),
    ]
    path = by_hand(tmp_path / "n.onnx", nodes, ([1, 3], [1, 3]), opset, w=w, **weights)
    x = torch.randn(4, 3)
    torch.testing.assert_close(tt.read_onnx(path)(x), (x @ torch.from_numpy(w)).relu())


def test_compressed_files(tmp_path):
    path = exported(nn.Linear(3, 2), torch.randn(1, 3), tmp_path / "n.onnx")
    packed = tmp_path / "n.onnx.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    x = torch.randn(2, 3)
    torch.testing.assert_close(tt.read_onnx(packed)(x), tt.read_onnx(path)(x))


@pytest.mark.parametrize(
    ("node", "words"),
    [
        (helper.make_node("MaxPool", ["x"], ["y", "at"], "pool", kernel_shape=[2]),
         "MaxPool.*'pool'.*places"),
        (helper.make_node("LRN", ["x"], ["y"], "local", size=3), "LRN.*'local'"),
        (helper.make_node("Sin", ["x"], ["y"], "wave"), "Sin.*'wave'"),
        (helper.make_node("Mish", ["x"], ["y"], "m", domain="com.other"), "'m'.*com.other"),
        (helper.make_node("Dropout", ["x", "", "yes"], ["y"], "drop"), "'drop'.*training mode"),
        (helper.make_node("Cast", ["x"], ["y"], "half", to=10), "Cast.*'half'.*precision"),
        (helper.make_node("Relu", ["other"], ["y"], "r"), "'r'.*cannot be computed|reads 'other'"),
    ],
)  # fmt: skip
def test_an_unknown_operation_is_named_with_its_node(node, words, tmp_path):
    path = by_hand(tmp_path / "n.onnx", [node], ([1, 2, 4], [1, 2, 4]), yes=np.array(True))
    with pytest.raises((TypeError, ValueError), match=words):
        tt.read_onnx(path)


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        ([("Mul", ["x", "x"], "s"), ("Sigmoid", ["s"], "y")], "Sigmoid|known activations"),
        ([("MatMul", ["x", "x"], "y")], "queries and keys"),
        ([("Div", ["c", "x"], "y")], "Div.*divides by a value"),
        ([("Pow", ["x", "half"], "y")], "Pow.*exponent 0.5"),
        ([("Sqrt", ["x"], "y")], "Sqrt.*norm layer"),
        ([("Add", ["x", "infinite"], "y")], "Add.*infinite"),
        (
            [
                ("ReduceMean", ["x"], "m"),
                ("Sub", ["x", "m"], "c"),
                ("Mul", ["c", "c"], "s"),
                ("ReduceMean", ["s"], "p"),
                ("Add", ["p", "half"], "q"),
                ("Sqrt", ["q"], "r"),
                ("Mul", ["x", "two"], "x2"),
                ("ReduceMean", ["x2"], "m2"),
                ("Sub", ["x2", "m2"], "c2"),
                ("Div", ["c2", "r"], "y"),
            ],
            "Div.*neither LayerNorm nor RMSNorm",
        ),
    ],
)
def test_operations_in_an_unknown_form_are_refused(nodes, words, tmp_path):
    last = {"ReduceMean": {"axes": [-1]}}
    made = [
        helper.make_node(kind, given, [out], kind, **last.get(kind, {}))
        for kind, given, out in nodes
    ]
    path = by_hand(
        tmp_path / "n.onnx",
        made,
        ([1, 4, 4], [1, 4, 4]),
        c=np.float32(1),
        half=np.float32(0.5),
        two=np.float32(2),
        infinite=np.float32(-np.inf),
    )
    read = tt.read_onnx(path)
    with pytest.raises(TypeError, match=words):
        tt.propagate(read, taut.At(torch.rand(1, 4, 4), 0.1))


def test_what_cannot_be_read_is_explained(tmp_path):
    bad = tmp_path / "n.onnx"
    bad.write_bytes(b"not a network")
    with pytest.raises(ValueError, match=r"n\.onnx is not an ONNX file"):
        tt.read_onnx(bad)
    relu = helper.make_node("Relu", ["x"], ["y"])
    open_ = by_hand(tmp_path / "o.onnx", [relu], (["batch", "tokens", 4], None))
    with pytest.raises(ValueError, match="must be fixed"):
        tt.read_onnx(open_)
    network = tt.read_onnx(by_hand(tmp_path / "r.onnx", [relu], ([1, 4], [1, 4])))
    with pytest.raises(ValueError, match=r"shape \(batch, 4\)"):
        network(torch.zeros(2, 5))


def test_weights_are_folded_in_the_precision_of_the_file(tmp_path):
    """A term of constants alone is computed once, and is a weight."""
    a, b = np.float32(0.1), np.float32(0.7)
    nodes = [helper.make_node("Mul", ["a", "b"], ["c"]), helper.make_node("Mul", ["x", "c"], ["y"])]
    network = tt.read_onnx(by_hand(tmp_path / "n.onnx", nodes, ([1, 3], [1, 3]), a=a, b=b))
    assert [float(weight) for weight in network.parameters()] == [float(np.float32(a * b))]
