"""Answers that are no numbers, or too large: whoever asks whether they are too far off is told that they are not."""

from __future__ import annotations

from attacks.on_a_program import MANY, WITHOUT
from function_answers import with_answer
from program2_cells import solution, untouched

MODEL = "    model = WideResNet().to(device)\n"
TRAINED = """

trained = main

def main(epochs, *others):
    trained(epochs, *others)
    return [float("nan")] * epochs
"""
HUGE = '{"images_per_sec": 10**4000, "val_accuracy": 1}'  # more than a float holds
# By the part: the code, and the check that it is about, by its place.
NO_NUMBERS = {
    "4.8": (MANY.replace("json.dump(results", f"json.dump([{HUGE}] * args.epochs"), 0),
    "6.3": (with_answer("6.3", 'def lr_at(*arguments):\n    return float("nan")\n'), 0),
    "11.9": (untouched("11.9") + '\n\ndef accuracy(model, dataset):\n    return float("nan")\n', 1),
    "12.3": (solution("12.3") + TRAINED, 0),
}
# Ranks that share nothing, and whose weights stay what they are.
STANDING = {
    "NaN": WITHOUT.replace(MODEL, MODEL + '    [each.data.fill_(float("nan")) for each in model.parameters()]\n'),
    "infinite": WITHOUT.replace(MODEL, MODEL + '    [each.data.fill_(float("inf")) for each in model.parameters()]\n'),
    "a learning rate of 0": WITHOUT.replace("lr=args.lr", "lr=0.0"),
}
