"""What five much-read articles advise against `ResourceExhaustedError`, and what is true."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Advice:
    """One piece of advice of an article."""

    says: str
    """In short."""
    rules: tuple[str, ...] = ()
    """Which rules have it; none where another part of oommagic answers it."""
    program: str = ""
    """The article's own program, as bench/advice has it."""
    truth: str = ""
    """Where the article is wrong, or says half of it."""


@dataclass(frozen=True, slots=True)
class Article:
    """An article and its advice, in its order."""

    title: str
    advice: tuple[Advice, ...]


_ACCUMULATION = Advice(
    "accumulate gradients over small batches",
    ("gradient-accumulation",),
    "large images",
    "It keeps the effective batch, not the statistics of batch normalisation; what sums the "
    "gradients takes the weights' size once more.",
)
_DATA_API = "`from_tensor_slices` with `batch` and `prefetch(AUTOTUNE)`"

ARTICLES = (
    Article(
        "How can I resolve ResourceExhaustedError exceptions?",
        (
            Advice(
                "profile memory line by line, watch `nvidia-smi`",
                truth="`nvidia-smi` shows what TensorFlow has reserved, not what it uses; "
                "memory_profiler knows nothing of a device. `%%oomprofile` reads both where they "
                "are accounted for.",
            ),
            Advice("reduce the batch size", ("smaller-batch",)),
            Advice(
                "accumulate gradients (example 1)",
                ("accumulates-nothing", "gradient-accumulation"),
                "accumulates nothing",
                "The example accumulates nothing: it applies the gradients of each small batch, "
                "divided by four. It saves what the small batch saves. With SGD the division is a "
                "quarter of the learning rate; with Adam, as there, it changes nothing.",
            ),
            Advice(
                "`np.load(…, mmap_mode='r')` and read in chunks (example 2)",
                ("memory-mapped",),
                "a file read whole",
                "Right, and it needs to be opened once, not for each chunk. `del chunk` at the end "
                "of the loop's body frees it one turn earlier.",
            ),
            Advice(
                f"{_DATA_API} (example 3)",
                ("data-on-host", "stream-instead-of-hold", "prefetch-buffer"),
                "slices of an array",
                "`from_tensor_slices` copies the array: it takes more of the host's memory, not "
                "less. `prefetch` holds more batches, which costs memory and saves time.",
            ),
            Advice("use data generators", ("stream-instead-of-hold",)),
            Advice(
                "prune or quantise the model, or take a smaller one",
                ("quantisation", "fewer-units", "separable-convolutions"),
                truth="Pruning and quantisation shrink a model that is deployed, not a step that "
                "trains it.",
            ),
            Advice("get more memory or more devices", ("larger-card", "raised-limit")),
        ),
    ),
    Article(
        "Why does `model.fit()` in TensorFlow raise a `ResourceExhaustedError` during training?",
        (
            Advice("reduce the batch from 128 to 32", ("smaller-batch",), "large images"),
            _ACCUMULATION,
            Advice(
                "a smaller embedding, or a smaller vocabulary",
                ("smaller-embedding", "lighter-optimizer"),
                "a large embedding",
                "Adam keeps two more tables of that size; an optimizer without slots helps too.",
            ),
            Advice(
                "mixed precision",
                ("mixed-precision",),
                "large images",
                "Activations halve; weights stay float32 and are copied once as float16. On a "
                "model of large weights and small activations it takes more.",
            ),
            Advice(
                "XLA",
                ("xla",),
                truth="It may take more or less: a compiled step gets its memory in one piece. On "
                "a GPU Keras compiles by itself.",
            ),
            Advice("smaller images", ("smaller-inputs",), "large images"),
        ),
    ),
    Article(
        "Why does TensorFlow throw a ResourceExhaustedError after the first batch?",
        (
            Advice(
                "the batch is too large (example 1)",
                ("smaller-batch",),
                "a custom loop",
                "A step's memory does not grow from batch to batch: what fits once fits again. "
                "Where the second step fails, the first has left something: see what grew.",
            ),
            Advice(
                "do not return the activations from the step (example 2)",
                ("list-keeps-tensors",),
                truth="What a step returns goes when nobody keeps it: the example does not leak. "
                "A list that keeps the returned tensors does. Notebook 03 measures "
                "five hundred steps of the example.",
            ),
            Advice(
                "memory growth (example 3)",
                ("memory-growth",),
                "memory growth",
                "Growth does not lower what a step needs. It only lets other processes have the "
                "rest of the card.",
            ),
            Advice("float32 instead of float64", ("float64-to-float32",)),
            Advice(
                "eager execution avoids accumulating tensors",
                truth="It does not: eager tensors live as long as a name or a list holds them, and "
                "a `tf.function` frees its own sooner.",
            ),
        ),
    ),
    Article(
        "How to resolve tf.keras ResourceExhaustedError during CNN training in a loop?",
        (
            Advice(
                "halve the batch on an error and fit again (example 1)",
                ("batch-size-fallback", "smaller-batch"),
                "a fit that is retried",
                "While the error is being handled its traceback holds the failed step's tensors, "
                "and the model has taken some of its steps: retry outside of `except`, with the "
                "state put back.",
            ),
            Advice(
                "accumulate gradients (example 2)",
                ("undivided-gradients", "gradient-accumulation"),
                "accumulation by hand",
                "It accumulates, and forgets to divide: with SGD the sum of four gradients is four "
                "times the learning rate, with Adam it is the mean. What is left at the end of an "
                "epoch is thrown away.",
            ),
            Advice(
                "depthwise separable convolutions",
                ("separable-convolutions",),
                truth="They have fewer weights; their activations, which fill the device, are as "
                "large, and there is one more of them.",
            ),
            Advice(
                "cheaper activation functions",
                ("cheaper-activation-functions",),
                truth="What an activation function computes does not matter, but what it keeps for "
                "backpropagation does.",
            ),
            Advice(
                "checkpoints, and a restart (example 3)",
                ("checkpoints",),
                "large images",
                "A checkpoint frees nothing; it makes a restart lose less.",
            ),
            Advice(
                "`del x_train, y_train` and `gc.collect()` in the loop (example 3)",
                ("early-del",),
                truth="The second epoch fails with a NameError. `del` frees what nobody holds; "
                "`gc.collect()` adds nothing where there are no cycles.",
            ),
            Advice(
                "models that pile up in the loop",
                ("one-model",),
                truth="A trained model stays until the process ends; neither `del` nor "
                "`clear_session` gives it back. Build it once.",
            ),
        ),
    ),
    Article(
        "Why am I getting a ResourceExhaustedError when using Keras with multiple GPUs?",
        (
            Advice(
                "halve the batch until it fits (example 1)",
                ("batch-size-fallback", "smaller-batch"),
                "halved until it fits",
                "Under a strategy the batch of `fit` is the global one: each device has its share.",
            ),
            Advice(
                f"{_DATA_API}, `shuffle(1000)` (example 2)",
                ("data-on-host", "shuffle-buffer", "prefetch-buffer", "stream-instead-of-hold"),
                "a shuffled pipeline",
                "A buffer of a thousand counts elements, so its bytes are a thousand samples' on "
                "the host. None of it lowers what a device needs.",
            ),
            Advice(
                "a custom loop as a `tf.function` (example 3)",
                ("per-replica-batch",),
                truth="The loop is not what takes memory: the per-replica batch is.",
            ),
            Advice("compress the model, lower precision", ("mixed-precision", "quantisation")),
            Advice("another optimizer", ("lighter-optimizer",)),
            Advice(
                "shorter sequences, smaller kernels",
                ("smaller-inputs",),
                truth="A kernel's size changes the weights; a convolution's activations are as "
                "large as its output.",
            ),
        ),
    ),
)
