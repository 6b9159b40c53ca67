"""What is planned and then tried: models, each with an optimizer and a device of a fixed size."""

from dataclasses import dataclass

MB = 1 << 20


@dataclass(frozen=True, slots=True)
class Case:
    """A model of `bench.plan.models` with its optimizer, and the device that it has to fit."""

    model: str
    optimizer: str
    limit_mb: int
    is_compiled: bool = False
    """Whether the step is compiled by XLA: `jit_compile=True`."""

    @property
    def name(self) -> str:
        """Say it in a few words."""
        words = f"{self.model.replace('_', ' ')}, {self.optimizer}"
        return f"{words}, compiled" if self.is_compiled else words

    @property
    def sizes(self) -> tuple[int, ...]:
        """Give the batch sizes that are held against the truth, as far as they fit."""
        return (4, 16, 64) if self.is_compiled else (4, 16, 64, 128, 256)

    @property
    def truths(self) -> int:
        """Say how many processes measure the truth of one size.

        What XLA compiled asks for the same in each.
        """
        return 1 if self.is_compiled else 3

    @property
    def steps(self) -> int:
        """Say how many steps each of them runs: of compiled ones, the first and two more."""
        return 3 if self.is_compiled else 5

    @property
    def limit_bytes(self) -> int:
        """Give the size of its device."""
        return self.limit_mb * MB


def _compiled(model: str, optimizer: str, limit_mb: int) -> Case:
    return Case(model, optimizer, limit_mb, is_compiled=True)


QUICK = (Case("wide_mlp", "sgd", 128), Case("gru", "adamw", 32))
"""Two small ones: to see that everything runs."""

# The largest batch lies between a few dozen and a few hundred, and a step there takes seconds.
PLAIN = (
    Case("cnn", "sgd", 512),
    Case("vgg_like", "adamw", 512),
    Case("unet", "adam", 768),
    Case("autoencoder", "rmsprop", 512),
    Case("conv3d", "rmsprop", 1024),
    Case("mobilenet_v2", "sgd", 1024),
    Case("resnet50", "adam", 1024),
    Case("efficientnet_b0", "rmsprop", 1024),
    Case("lstm", "adam", 64),
    Case("gru", "adamw", 64),
    Case("conv1d_text", "sgd", 96),
    Case("transformer_encoder", "adam", 512),
    Case("decoder_lm", "adamw", 768),
    Case("gan", "adam", 160),
    Case("wide_mlp", "sgd", 128),
    Case("seeds_large_images", "adam", 1536),
    Case("seeds_long_text", "rmsprop", 256),
    Case("seeds_complex_cnn", "sgd", 768),
)
# The same models: XLA compiles them all.
COMPILED = (
    _compiled("cnn", "adam", 768),
    _compiled("vgg_like", "rmsprop", 512),
    _compiled("unet", "adamw", 512),
    _compiled("autoencoder", "sgd", 384),
    _compiled("conv3d", "adam", 512),
    _compiled("mobilenet_v2", "adam", 768),
    _compiled("resnet50", "sgd", 768),
    _compiled("efficientnet_b0", "adamw", 768),
    _compiled("lstm", "rmsprop", 96),
    _compiled("gru", "adam", 96),
    _compiled("conv1d_text", "adamw", 192),
    _compiled("transformer_encoder", "adamw", 512),
    _compiled("decoder_lm", "sgd", 512),
    _compiled("gan", "rmsprop", 192),
    _compiled("wide_mlp", "adam", 256),
    _compiled("seeds_large_images", "sgd", 1536),
    _compiled("seeds_long_text", "adam", 256),
    _compiled("seeds_complex_cnn", "adamw", 768),
)
ALL = (*PLAIN, *COMPILED)
