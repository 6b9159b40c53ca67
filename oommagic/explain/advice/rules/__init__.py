"""All rules, each in a file of its own."""

from oommagic.explain.advice.rule import Rule
from oommagic.explain.advice.rules.accumulates_nothing import AccumulatesNothing
from oommagic.explain.advice.rules.arrays_in_fit import ArraysInFit
from oommagic.explain.advice.rules.async_allocator import AsyncAllocator
from oommagic.explain.advice.rules.batch_size_fallback import BatchSizeFallback
from oommagic.explain.advice.rules.cache_to_file import CacheToFile
from oommagic.explain.advice.rules.cheaper_activation_functions import CheaperActivationFunctions
from oommagic.explain.advice.rules.checkpoints import Checkpoints
from oommagic.explain.advice.rules.data_on_host import DataOnHost
from oommagic.explain.advice.rules.early_del import EarlyDel
from oommagic.explain.advice.rules.fewer_units import FewerUnits
from oommagic.explain.advice.rules.float64_to_float32 import Float64ToFloat32
from oommagic.explain.advice.rules.gradient_accumulation import GradientAccumulation
from oommagic.explain.advice.rules.in_place_arithmetic import InPlaceArithmetic
from oommagic.explain.advice.rules.integer_labels import IntegerLabels
from oommagic.explain.advice.rules.larger_card import LargerCard
from oommagic.explain.advice.rules.lighter_optimizer import LighterOptimizer
from oommagic.explain.advice.rules.list_keeps_tensors import ListKeepsTensors
from oommagic.explain.advice.rules.lora import Lora
from oommagic.explain.advice.rules.map_in_parallel import MapInParallel
from oommagic.explain.advice.rules.map_order import MapOrder
from oommagic.explain.advice.rules.memory_growth import MemoryGrowth
from oommagic.explain.advice.rules.memory_mapped import MemoryMapped
from oommagic.explain.advice.rules.mixed_precision import MixedPrecision
from oommagic.explain.advice.rules.one_model import OneModel
from oommagic.explain.advice.rules.outputs_kept import OutputsKept
from oommagic.explain.advice.rules.per_replica_batch import PerReplicaBatch
from oommagic.explain.advice.rules.pooling_instead_of_flatten import PoolingInsteadOfFlatten
from oommagic.explain.advice.rules.predict_in_pieces import PredictInPieces
from oommagic.explain.advice.rules.predict_instead_of_call import PredictInsteadOfCall
from oommagic.explain.advice.rules.prefetch_buffer import PrefetchBuffer
from oommagic.explain.advice.rules.pruning import Pruning
from oommagic.explain.advice.rules.quantisation import Quantisation
from oommagic.explain.advice.rules.raised_limit import RaisedLimit
from oommagic.explain.advice.rules.recompute_activations import RecomputeActivations
from oommagic.explain.advice.rules.retraces import Retraces
from oommagic.explain.advice.rules.separable_convolutions import SeparableConvolutions
from oommagic.explain.advice.rules.shared_embedding import SharedEmbedding
from oommagic.explain.advice.rules.shorter_sequences import ShorterSequences
from oommagic.explain.advice.rules.shuffle_buffer import ShuffleBuffer
from oommagic.explain.advice.rules.smaller_batch import SmallerBatch
from oommagic.explain.advice.rules.smaller_embedding import SmallerEmbedding
from oommagic.explain.advice.rules.smaller_inputs import SmallerInputs
from oommagic.explain.advice.rules.stream_instead_of_hold import StreamInsteadOfHold
from oommagic.explain.advice.rules.undivided_gradients import UndividedGradients
from oommagic.explain.advice.rules.with_xla import WithXla
from oommagic.explain.advice.rules.xla import Xla

RULES: tuple[Rule, ...] = (
    # For the device's memory: the step's, then what lies there besides, then failing well.
    SmallerBatch(),
    GradientAccumulation(),
    AccumulatesNothing(),
    MixedPrecision(),
    RecomputeActivations(),
    Xla(),
    WithXla(),
    LighterOptimizer(),
    SmallerInputs(),
    ShorterSequences(),
    SmallerEmbedding(),
    PoolingInsteadOfFlatten(),
    SeparableConvolutions(),
    PredictInsteadOfCall(),
    DataOnHost(),
    ListKeepsTensors(),
    OneModel(),
    BatchSizeFallback(),
    Checkpoints(),
    # For the host's memory: files and arrays, data sets, predictions, graphs.
    MemoryMapped(),
    Float64ToFloat32(),
    InPlaceArithmetic(),
    EarlyDel(),
    IntegerLabels(),
    StreamInsteadOfHold(),
    ShuffleBuffer(),
    PrefetchBuffer(),
    CacheToFile(),
    MapOrder(),
    MapInParallel(),
    PredictInPieces(),
    Retraces(),
    # Hints: for the training, the notebook, the machine.
    UndividedGradients(),
    ArraysInFit(),
    PerReplicaBatch(),
    CheaperActivationFunctions(),
    FewerUnits(),
    SharedEmbedding(),
    Lora(),
    Quantisation(),
    Pruning(),
    OutputsKept(),
    AsyncAllocator(),
    MemoryGrowth(),
    RaisedLimit(),
    LargerCard(),
)
"""In the order in which the docs list them."""
