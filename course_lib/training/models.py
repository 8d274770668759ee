"""The models of the course: images [n, 1, 28, 28] in, logits [n, 10] out."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import relu

from course_lib.config import MODELS
from course_lib.errors import ConfigError

CLASSES = 10


class MLP(nn.Sequential):
    """784-256-128-10 with ReLU and dropout 0.1: 235,146 parameters."""

    def __init__(self) -> None:
        super().__init__(
            nn.Flatten(),
            nn.Linear(784, 256),
            nn.ReLU(),
            nn.Dropout(0.1),
            nn.Linear(256, 128),
            nn.ReLU(),
            nn.Dropout(0.1),
            nn.Linear(128, CLASSES),
        )


class SmallCNN(nn.Sequential):
    """Two convolutions of 32 and 64 channels and two linear layers: 220,426 parameters.

    GroupNorm (Wu and He 2018, arXiv 1803.08494) stands where BatchNorm is usual: it looks at one image
    at a time, so the result does not depend on how a batch is dealt to ranks.
    """

    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(1, 32, 3, padding=1),
            nn.MaxPool2d(2),
            nn.GroupNorm(2, 32),
            nn.ReLU(),
            nn.Conv2d(32, 64, 3, padding=1),
            nn.MaxPool2d(2),
            nn.GroupNorm(4, 64),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(64 * 7 * 7, 64),
            nn.ReLU(),
            nn.Linear(64, CLASSES),
        )


class WideResNet(nn.Module):
    """A wide residual network of `depth` = 6n + 4 layers, `width` times as wide as the plain one.

    Zagoruyko and Komodakis 2016 (arXiv 1605.07146), with pre-activation (He et al. 2016, arXiv 1603.05027), for one
    channel. WRN-16-4 has 2,748,602 parameters, WRN-40-4 has 8,948,922.

    Raises:
        ConfigError: the depth is not 6n + 4, or the width is below 1.
    """

    def __init__(self, depth: int, width: int) -> None:
        super().__init__()
        if depth < 10 or depth % 6 != 4 or width < 1:
            raise ConfigError(
                f"A WideResNet has a depth of 10, 16, 22, 28, 34, 40 and so on (6n + 4) and a width of at least 1, not "
                f"depth {depth} and width {width}."
            )
        blocks = (depth - 4) // 6
        self.stem = nn.Conv2d(1, 16, 3, padding=1, bias=False)
        self.groups = nn.Sequential(
            _group(blocks, 16, 16 * width, stride=1),
            _group(blocks, 16 * width, 32 * width, stride=2),
            _group(blocks, 32 * width, 64 * width, stride=2),
        )
        self.norm = nn.BatchNorm2d(64 * width)
        self.head = nn.Linear(64 * width, CLASSES)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = relu(self.norm(self.groups(self.stem(images))))
        logits: Tensor = self.head(features.mean((2, 3)))
        return logits


class Block(nn.Module):
    """Two 3x3 convolutions, each after BatchNorm and ReLU, added to the input (or to a 1x1 convolution of it)."""

    def __init__(self, channels_in: int, channels_out: int, stride: int) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(channels_in)
        self.conv1 = nn.Conv2d(channels_in, channels_out, 3, stride, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels_out)
        self.conv2 = nn.Conv2d(channels_out, channels_out, 3, padding=1, bias=False)
        self.project = (
            nn.Conv2d(channels_in, channels_out, 1, stride, bias=False) if channels_in != channels_out else None
        )

    def forward(self, x: Tensor) -> Tensor:
        activated = relu(self.norm1(x))
        residual = self.conv2(relu(self.norm2(self.conv1(activated))))
        added: Tensor = residual + (x if self.project is None else self.project(activated))
        return added


def build(name: str) -> nn.Module:
    """The model that `config.MODELS` lists under `name`, with fresh weights from torch's random state.

    Raises:
        ConfigError: there is no such model.
    """
    if name == "mlp":
        return MLP()
    if name == "small_cnn":
        return SmallCNN()
    if name in MODELS:
        depth, width = name.removeprefix("wrn-").split("-")
        return WideResNet(int(depth), int(width))
    raise ConfigError(f"model must be one of {', '.join(MODELS)}, not {name!r}.")


def _group(blocks: int, channels_in: int, channels_out: int, stride: int) -> nn.Sequential:
    first = Block(channels_in, channels_out, stride)
    return nn.Sequential(first, *(Block(channels_out, channels_out, 1) for _ in range(blocks - 1)))
