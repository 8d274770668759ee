"""Exercise 4: from one GPU to many. A whole program, converted in six steps, and the details after them."""

from __future__ import annotations

from course_lib.grading.exercises import program_files as files
from course_lib.grading.exercises import program_laws as laws
from course_lib.grading.exercises.program_laws import holds
from course_lib.grading.parts import Check, Exercise, Part

CELLS = ("program",)


PARTS = (
    Part(
        "4.1",
        "A process for each GPU",
        CELLS,
        (Check("one process for each GPU that was asked for", 1, holds(laws.processes, "3")),),
        (
            "One process cannot be on two GPUs at once. The program needs somebody who starts the others.",
            "`torch.multiprocessing.spawn` starts as many processes as you say and calls a function in each.",
            "The function gets the number of its process first, then what is in `args`. Call it from `main`.",
        ),
    ),
    Part(
        "4.2",
        "One group",
        CELLS,
        (
            Check("all processes join one group, each with a rank of its own", 2, holds(laws.group, "3", "2")),
            Check("on two nodes too, where they are told to meet", 1, holds(laws.nodes, "2x2")),
            Check("two programs at once do not disturb each other", 1, holds(laws.copies, "failing", "1")),
        ),
        (
            "Processes that do not know each other cannot average anything.",
            "`torch.distributed.init_process_group` needs to know how many there are, which one this is, and where to "
            "meet.",
            "The rank counts through all nodes: those of the nodes before, then this one's place on its node. "
            "`os.environ.setdefault` chooses an address only where nobody else did.",
        ),
    ),
    Part(
        "4.3",
        "A GPU for each rank",
        CELLS,
        (Check("each rank of a node uses a GPU of its own, on two nodes too", 2, holds(laws.devices, "gpus")),),
        (
            'Print the device of each rank. Which GPU is "cuda", without a number?',
            "Each node counts its GPUs from 0. Which number of a process does so too?",
            '`torch.device("cuda", local_rank)` where there are GPUs, and the CPU where there are none.',
        ),
    ),
    Part(
        "4.4",
        "Each image to one rank",
        CELLS,
        (
            Check("each image is read by one rank in each epoch", 2, holds(laws.dealt, "2", "3", "2x2")),
            Check("in another order in each epoch", 1, holds(laws.reshuffled, "2", "2x2")),
        ),
        (
            "Print which images each rank reads.",
            "`DistributedSampler` deals the indices of a data set to the ranks of the group.",
            "It shuffles by a seed and by the number of the epoch, which somebody has to tell it.",
        ),
    ),
    Part(
        "4.5",
        "The mean gradient",
        CELLS,
        (
            Check("all ranks have the same weights before each step", 1, holds(laws.in_step, "2", "3", "2x2")),
            Check("they learn as one process would, with SGD and with AdamW", 2, holds(laws.as_one, "2", "3", "2x2")),
        ),
        (
            "After one step, do all ranks own the same weights?",
            "`DistributedDataParallel` wraps a model, and averages gradients while they are computed.",
            "It sees what goes through the wrapper: call the wrapper, not the model inside.",
        ),
    ),
    Part(
        "4.6",
        "The loop unchanged",
        CELLS,
        (
            Check(
                "the program ends on 1 to 4 ranks, with as many steps on each", 2, holds(laws.complete, *"123", "2x2")
            ),
            Check("a rank that fails ends all", 1, holds(laws.ends_together, "failing")),
            Check("NaN on one rank does not part them", 1, laws.not_a_number),
            Check("the seed decides how it begins", 1, laws.seeded),
        ),
        (
            "Each call that waits for others must be reached by all of them.",
            "Does a rank take more steps than another one? What does a rank do whose partner is gone?",
            "What stands inside `if rank == 0`, or in an `except`, and does it wait for anybody?",
        ),
    ),
    Part(
        "4.7",
        "A barrier where one is needed",
        CELLS,
        (
            Check(
                "one process of a node unpacks the images, and all read them afterwards",
                2,
                holds(files.prepared, "cold"),
            ),
        ),
        (
            "Remove the folder `data`, and start the program on two ranks. What happens, and is it always the same?",
            "One process of each node should unpack; the others must not read before it is done.",
            "`dist.barrier()` lets nobody pass before all have come. Where does the one who unpacks call it, and where "
            "the others?",
        ),
    ),
    Part(
        "4.8",
        "Images a second of all ranks",
        CELLS,
        (Check("images_per_sec in result.json is that of all ranks", 2, holds(files.speed, "3", "2x2")),),
        (
            "How many images does one rank train on in an epoch, and how many do all of them?",
            "Each rank knows its own speed. Which collective adds numbers up?",
            "`dist.reduce(tensor, dst=0)` adds into the tensor of rank 0; on others it is not to be used.",
        ),
    ),
    Part(
        "4.9",
        "Validation accuracy over all ranks",
        CELLS,
        (Check("val_accuracy in result.json is exact on 1 to 4 ranks", 2, holds(files.accuracy, *"123", "2x2")),),
        (
            "13 images on 2 ranks: how many does each look at?",
            "Is the mean of two accuracies the accuracy, when one is over 7 images and one over 6?",
            "Add up how many were right and how many there were, over all ranks. Then divide. `DistributedSampler` "
            "repeats images so that all ranks have as many.",
        ),
    ),
    Part(
        "4.10",
        "One writer",
        CELLS,
        (
            Check("model.pt and result.json are written by one process", 1, holds(files.one_writer, "2", "3", "2x2")),
            Check("a plain WideResNet can load model.pt", 1, files.saved),
        ),
        (
            "How many processes write `model.pt`, on one node and on two?",
            "One rank writes. Which number is there only once, on all nodes together?",
            "The wrapper puts `module.` before each name. The model inside has the plain ones.",
        ),
    ),
)
EXERCISE = Exercise("04_one_gpu_to_many", "From one GPU to many", PARTS)
