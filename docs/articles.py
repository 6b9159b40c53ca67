"""What five much-read articles advise against `ResourceExhaustedError`, and what is true."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Advice:
    """One piece of advice of an article."""

    says: str
    """In short."""
    rules: tuple[str, ...] = ()
    """Which rules have it."""
    program: str = ""
    """The article's own program, as bench/advice has it."""
    truth: str = ""
    """Where the article is wrong, or says half of it."""
    answer: str = ""
    """What of oommagic answers it that is no rule, as a link."""


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
_PROFILE = "[`%%oomprofile`](magic.md)"
_WHY = "[`%oomwhy`](why.md)"
_WHICH_BATCH = "[`%oombatch`](plan.md)"
_TRY = "[`%oomtry`](#predicted-and-measured)"

ARTICLES = (
    Article(
        "How can I resolve ResourceExhaustedError exceptions?",
        (
            Advice(
                "profile memory line by line with memory_profiler",
                answer=_PROFILE,
                truth="memory_profiler reads the host's memory after a line and knows nothing of "
                "a device. `%%oomprofile` reads both, with the peak inside each line.",
            ),
            Advice(
                "watch `nvidia-smi`",
                answer=_PROFILE,
                truth="It shows what TensorFlow has reserved, which is nearly the whole card, not "
                "what is in use.",
            ),
            Advice(
                "watch `top`, `htop`, `iostat`",
                answer=_WHY,
                truth="A busy CPU, disk or network slows a program down; what TensorFlow says has "
                "run out is memory. `%oomwhy` says whose, and against which limit.",
            ),
            Advice(
                "look through the code for leaks, large intermediate arrays and copies",
                (
                    "list-keeps-tensors",
                    "in-place-arithmetic",
                    "early-del",
                    "float64-to-float32",
                    "arrays-in-fit",
                ),
                answer=_WHY,
                truth="What grows from step to step is measured, with the line that keeps it.",
            ),
            Advice(
                "reduce the batch size",
                ("smaller-batch",),
                answer=_WHICH_BATCH,
                truth="What lasts (weights, slots) stays. Which batch fits need not be guessed.",
            ),
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
            Advice(
                "use data generators",
                ("stream-instead-of-hold", "arrays-in-fit", "memory-mapped"),
                truth="They help the host's memory, if they don't go over arrays that are there as "
                "a whole anyway. What a step takes of the device stays.",
            ),
            Advice(
                "prune the model",
                ("pruning",),
                truth="Weights that are set to zero take as much as before, in training and in "
                "predictions. Only units that are gone take less.",
            ),
            Advice(
                "quantise the model",
                ("quantisation",),
                truth="It is for predictions: a quantised layer can't be trained.",
            ),
            Advice(
                "a smaller, more efficient model",
                ("fewer-units", "pooling-instead-of-flatten", "separable-convolutions", "lora"),
                truth="Layers differ by thousands: the report says which one takes it.",
            ),
            Advice(
                "get more memory or more devices",
                ("larger-card", "raised-limit", "per-replica-batch"),
                truth="More devices of the same size divide the batch, not the model.",
            ),
            Advice(
                "debuggers made for deep learning",
                answer=_WHY,
                truth="What filled the device is told by layer and kind, from the allocations that "
                "TensorFlow's own profiler records.",
            ),
        ),
    ),
    Article(
        "Why does `model.fit()` in TensorFlow raise a `ResourceExhaustedError` during training?",
        (
            Advice(
                "reduce the batch from 128 to 32",
                ("smaller-batch",),
                "large images",
                "Right; the largest batch that fits is found without trying.",
            ),
            _ACCUMULATION,
            Advice(
                "a smaller embedding, or a smaller vocabulary",
                ("smaller-embedding", "lighter-optimizer", "shared-embedding"),
                "a large embedding",
                "Adam keeps two more tables of that size; an optimizer without slots helps too. "
                "Words that are left out of the vocabulary save a row each.",
            ),
            Advice(
                "watch memory with TensorFlow's profiling tools",
                answer=_PROFILE,
                truth="They record a device's allocations, which `%%oomprofile` reads and names by "
                "layer, kind and name in the notebook.",
            ),
            Advice(
                "adjust batch, architecture or precision, one after the other",
                ("fewer-units", "pooling-instead-of-flatten", "separable-convolutions"),
                answer=_TRY,
                truth="What each would save is told before, and `%oomtry` measures it, alone or "
                "together.",
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
                ("with-xla", "xla"),
                "large images",
                "It may take more or less: of fourteen nets on a CPU, six took less with it. A "
                "compiled step gets its memory in one piece. On a GPU Keras compiles by itself.",
            ),
            Advice(
                "smaller images",
                ("smaller-inputs",),
                "large images",
                "At half the side, activations are a quarter. Nothing was offered: these images "
                "are made in another cell.",
            ),
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
            Advice(
                "float32 instead of float64",
                ("float64-to-float32",),
                truth="Right for arrays on the host. Keras turns what `fit` is given into float32 "
                "for the model, so a step takes no more.",
            ),
            Advice(
                "release variables between the stages of a long training",
                ("one-model", "outputs-kept"),
                answer=_WHY,
                truth="A model and its optimizer stay as long as a name, a list or `Out[]` holds "
                "them, and a trained one longer.",
            ),
            Advice(
                "say on which device tensors are placed",
                ("data-on-host",),
                "memory growth",
                "It helps where a whole data set lies on the device. Weights, activations and "
                "gradients have to be there.",
            ),
            Advice(
                "`tf.data` pipelines",
                ("shuffle-buffer", "prefetch-buffer", "cache-to-file", "map-order"),
                truth="Their buffers take memory, and count elements, not bytes.",
            ),
            Advice(
                "try several batch sizes",
                ("smaller-batch",),
                answer=_WHICH_BATCH,
                truth="Two or three small steps tell what any size takes.",
            ),
            Advice(
                "watch `nvidia-smi` for the moment when memory is full",
                answer=_PROFILE,
                truth="It shows what TensorFlow has reserved: nearly the whole card from the first "
                "tensor on, and with memory growth what was once needed.",
            ),
            Advice(
                "eager execution avoids accumulating tensors",
                answer=_WHY,
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
                "release tensors before each turn, to reset the device's memory",
                ("list-keeps-tensors", "outputs-kept"),
                answer=_WHY,
                truth="A step's own tensors go when it ends. What is left is held by a name, a "
                "list or a model, and nothing else gives it back.",
            ),
            Advice(
                "mixed precision",
                ("mixed-precision",),
                truth="Right for activations: measured on the second article's program. Weights "
                "stay float32, and a loop of one's own needs loss scaling.",
            ),
            Advice(
                "tools that profile the GPU's memory",
                answer=_PROFILE,
                truth="It names lines, layers and what grows, on a GPU and on a training device on "
                "the CPU.",
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
            Advice(
                "leaks: variable scopes, lifetimes of tensors, sessions",
                ("list-keeps-tensors", "one-model", "retraces", "outputs-kept"),
                answer=_WHY,
                truth="TensorFlow 2 has no sessions to close. What grows from step to step is "
                "measured and named.",
            ),
            Advice(
                "inefficient preprocessing and augmentation",
                ("map-order", "map-in-parallel", "shuffle-buffer", "cache-to-file"),
                truth="They take the host's memory, not the devices'.",
            ),
            Advice(
                "TensorFlow's debugging and memory profiling tools",
                answer=_PROFILE,
                truth="They record what TensorFlow allocates; `%%oomprofile` reads it for you.",
            ),
            Advice(
                "prune or quantise the model",
                ("pruning", "quantisation"),
                truth="Neither makes a training step smaller: zeros take as much as other numbers, "
                "and a quantised layer can't be trained.",
            ),
            Advice(
                "train in lower precision",
                ("mixed-precision",),
                truth="Activations halve, weights do not.",
            ),
            Advice(
                "another optimizer",
                ("lighter-optimizer",),
                truth="Adam keeps each weight twice more, plain SGD not at all.",
            ),
            Advice(
                "another framework for several GPUs",
                ("per-replica-batch",),
                truth="Whatever trains a copy of the model on each device needs as much of each. "
                "Only what divides the model itself needs less.",
            ),
            Advice(
                "shorter sequences",
                ("shorter-sequences",),
                truth="Right: what recurrent layers keep grows with the length, an attention's "
                "scores with its square.",
            ),
            Advice(
                "smaller kernels",
                ("separable-convolutions",),
                truth="A convolution's activations are as large as its output, whatever its "
                "kernel. What it computes with may grow: four convolutions on a CPU took 147 MB "
                "at 3×3, 163 MB at 5×5 and 219 MB at 7×7, of which weights were less than 1 MB. "
                "On a GPU nothing was measured.",
            ),
        ),
    ),
)
