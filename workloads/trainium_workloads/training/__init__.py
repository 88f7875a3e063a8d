"""Common parts of all trainings: backends, data order, precision, checkpoints, step lines, the loop. Needs PyTorch.

A training brings a :class:`~.task.Task` (model, examples, loss) and calls :func:`~.loop.train`; the same script then
runs on ``cpu`` (gloo), ``cuda`` (nccl), ``xla`` (PyTorch/XLA on Trn1) and ``neuron`` (TorchNeuron on Trn2 and later).
"""
