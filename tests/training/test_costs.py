"""What a model costs, against sums done by hand."""

from course_lib.training import models
from course_lib.training.costs import activation_bytes, flops_per_sample, gradient_bytes


def test_the_operations_of_the_mlp_are_those_of_its_matrices():
    """Forward one product for each weight; backward two, but for the images, which need no gradient."""
    layers = [(784, 256), (256, 128), (128, 10)]
    products = sum(3 * inputs * outputs for inputs, outputs in layers) - 784 * 256
    assert flops_per_sample("mlp") == 2 * products


def test_a_gradient_is_as_large_as_the_parameters():
    for name in ("mlp", "small_cnn", "wrn-16-4"):
        assert gradient_bytes(name) == 4 * sum(each.numel() for each in models.build(name).parameters())


def test_the_mlp_keeps_its_images_and_what_comes_of_its_two_hidden_layers():
    """Of each hidden layer: the output of ReLU, the mask of dropout and what dropout makes of them."""
    assert activation_bytes("mlp") == 4 * (784 + 3 * 256 + 3 * 128)


def test_larger_models_keep_more():
    kept = [activation_bytes(name) for name in ("mlp", "small_cnn", "wrn-16-4", "wrn-40-4")]
    assert kept == sorted(kept)
