"""Published weights: safetensors files with an index, as the Hugging Face Hub has them.

Each rank reads just its part of each tensor from the file, so that no process ever holds a whole model. An export
gathers one tensor after the other, and rank 0 writes a file whenever enough are there.
"""

import json
import math
import shutil
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from trainium_workloads.atomic_write import take_place
from trainium_workloads.decoder.configuration import GATED, REPOSITORIES, Configuration, read, written
from trainium_workloads.decoder.model import INITIAL_DEVIATION, Decoder
from trainium_workloads.training.refusal import Refusal
from trainium_workloads.training.sharding import Region, local_part, region_of

FILE_BYTES = 4 * 10**9
"""Of an exported file, about; rank 0 holds so much in memory."""

EXPORTED: Final = "trained.json"
"""File of an export with the facts of its training."""

_INDEX: Final = "model.safetensors.index.json"
_SINGLE: Final = "model.safetensors"
_COMPUTED: Final = ".rotary_emb.inv_freq"
"""In old files of Llama, though it is computed and not learnt."""
_COPIED: Final = (
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    "generation_config.json",
)


def initialize(model: nn.Module, seed: int) -> None:
    """Set random weights, the same for each division of the model: each tensor follows from the seed and its
    name. A rank makes one whole tensor at a time and keeps its part."""
    depth = math.sqrt(2 * sum(1 for name, _ in model.named_modules() if name.endswith(".mlp")))
    for name, parameter in model.named_parameters():
        if parameter.dim() == 1:
            local_part(parameter).fill_(1.0)
            continue
        # The CPU's generator takes no more than 32 bits of a seed.
        generator = torch.Generator().manual_seed(zlib.crc32(f"{seed} {name}".encode()))
        deviation = INITIAL_DEVIATION / (depth if name.endswith(("o_proj.weight", "down_proj.weight")) else 1.0)
        whole = torch.empty(parameter.shape).normal_(0.0, deviation, generator=generator)
        local_part(parameter).copy_(whole[region_of(parameter)])


class Published:
    """The weights in one directory.

    Args:
        directory: with ``model.safetensors``, or several files and their index.
        configuration: of the model that they must be of.

    Raises:
        Refusal: there are none, some are missing or cut off, or they are of another model.
    """

    def __init__(self, directory: Path, configuration: Configuration) -> None:
        self.directory = directory
        """Where they are."""
        self._files = _files(directory)
        self._check(configuration)

    def fill(self, model: nn.Module) -> None:
        """Read this rank's part of each parameter."""
        wanted: dict[Path, list[tuple[str, nn.Parameter]]] = {}
        for name, parameter in model.named_parameters():
            wanted.setdefault(self._files[name], []).append((name, parameter))
        for path, parameters in wanted.items():
            with _opened(path) as file:
                for name, parameter in parameters:
                    here = local_part(parameter)
                    if here.numel():
                        here.copy_(_part(file, name, region_of(parameter)))

    def _check(self, configuration: Configuration) -> None:
        with torch.device("meta"):
            model = Decoder(configuration)
        shapes = {name: tuple(each.shape) for name, each in model.named_parameters()}
        # The output layer's weight may stand in the file, too, where it is the embedding's.
        others = set(self._files) - set(shapes) - ({"lm_head.weight"} if configuration.tied else set())
        others = {name for name in others if not name.endswith(_COMPUTED)}
        if missing := sorted(set(shapes) - set(self._files)):
            raise Refusal(f"{self.directory} holds another model's weights: {_listed(missing)} missing")
        if others:
            raise Refusal(f"{self.directory} holds another model's weights: this one has no {_listed(sorted(others))}")
        found: dict[str, tuple[int, ...]] = {}
        for path in sorted(set(self._files.values())):
            with _opened(path) as file:
                held = set(file.keys())
                mine = [name for name, where in self._files.items() if where == path]
                if lost := sorted(set(mine) - held):
                    raise Refusal(f"{path} does not hold {_listed(lost)}, which the index says it does")
                found |= {name: tuple(file.get_slice(name).get_shape()) for name in mine}
        wrong = [
            f"{name} is {list(found[name])}, not {list(shape)}"
            for name, shape in shapes.items()
            if found[name] != shape
        ]
        if wrong:
            more = f" and {len(wrong) - 1} more" if len(wrong) > 1 else ""
            raise Refusal(f"{self.directory} holds weights of another size: {wrong[0]}{more}")


def export(
    model: nn.Module, configuration: Configuration, to: Path, origin: Path | None, facts: Mapping[str, Any]
) -> None:
    """Write the model as it is published: weights in BF16, ``config.json``, the tokenizer. All ranks call it; rank 0
    writes, and the directory appears when it is whole.

    Args:
        model: trained, with any division.
        configuration: its sizes.
        to: the directory; an earlier export there is replaced.
        origin: directory of the tokenizer and ``config.json`` to copy; None without one.
        facts: of the training, for ``trained.json``.

    Raises:
        OSError: it cannot be written, as on a full disk; an earlier export stays.
    """
    part = to.with_name(f"{to.name}.part")
    first = _is_first()
    if first:
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
    write(model, configuration, part, origin)
    if first:
        _write_json(part / EXPORTED, facts)
        take_place(part, to)


def write(
    model: nn.Module,
    configuration: Configuration,
    directory: Path,
    origin: Path | None = None,
    file_bytes: int = FILE_BYTES,
) -> None:
    """Write weights, ``config.json`` and the other published files into a directory; all ranks call it.

    Args:
        model: with any division.
        configuration: its sizes.
        directory: an existing one.
        origin: see :func:`export`.
        file_bytes: of a file, about.
    """
    first = _is_first()
    parameters = list(model.named_parameters())
    plan = _division([(name, each.numel() * 2) for name, each in parameters], file_bytes)
    held: dict[str, Tensor] = {}
    for number, (name, parameter) in enumerate(parameters):
        whole = _whole(parameter)
        if not first:
            continue
        held[name] = whole.cpu().contiguous()
        is_last = number + 1 == len(parameters) or plan[parameters[number + 1][0]] != plan[name]
        if is_last:
            _save(held, directory / plan[name])
            held.clear()
    if first:
        _describe(directory, configuration, plan, origin)


def _is_first() -> bool:
    return not torch.distributed.is_initialized() or torch.distributed.get_rank() == 0


def _whole(parameter: nn.Parameter) -> Tensor:
    """Return a tensor gathered in the exported precision: half as many bytes travel."""
    small = parameter.detach().to(torch.bfloat16)
    gathered: Tensor = small.full_tensor() if isinstance(small, DTensor) else small
    return gathered


def _division(sizes: list[tuple[str, int]], file_bytes: int) -> dict[str, str]:
    """Return the file of each tensor, by their sizes in bytes."""
    groups: list[list[str]] = [[]]
    held = 0
    for name, size in sizes:
        if groups[-1] and held + size > file_bytes:
            groups.append([])
            held = 0
        groups[-1].append(name)
        held += size
    if len(groups) == 1:
        return dict.fromkeys(groups[0], _SINGLE)
    return {
        name: f"model-{number:05d}-of-{len(groups):05d}.safetensors"
        for number, group in enumerate(groups, start=1)
        for name in group
    }


def _save(tensors: Mapping[str, Tensor], path: Path) -> None:
    from safetensors.torch import save_file

    save_file(dict(tensors), str(path), metadata={"format": "pt"})
    path.chmod(0o664)  # the package lets nobody else read it, and a team shares a volume


def _describe(part: Path, configuration: Configuration, plan: Mapping[str, str], origin: Path | None) -> None:
    """Write the files beside the weights."""
    if len(set(plan.values())) > 1:
        total = configuration.parameters * 2
        _write_json(part / _INDEX, {"metadata": {"total_size": total}, "weight_map": dict(plan)})
    described = written(configuration)
    if origin is not None:
        if (origin / "config.json").is_file():
            described = json.loads((origin / "config.json").read_text(encoding="utf-8"))
            described |= {"torch_dtype": "bfloat16"}
        for name in _COPIED:
            if (origin / name).is_file():
                shutil.copyfile(origin / name, part / name)
    _write_json(part / "config.json", described)


def _write_json(path: Path, data: object) -> None:
    path.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")


def check_export(to: Path) -> None:
    """Check before hours of training that its export can be written.

    Raises:
        Refusal: something else is there.
    """
    if to.exists() and not (to.is_dir() and ((to / EXPORTED).is_file() or not any(to.iterdir()))):
        raise Refusal(f"--export {to} exists, and was not exported by this; name a directory that is not there")


def _files(directory: Path) -> dict[str, Path]:
    """Return the file of each tensor."""
    if not directory.is_dir():
        raise Refusal(f"--weights {directory} is no directory; {_how_to_stage(directory)}")
    index = directory / _INDEX
    if index.is_file():
        try:
            names = {name: directory / file for name, file in json.loads(index.read_text())["weight_map"].items()}
        except (ValueError, KeyError, AttributeError):
            raise Refusal(f"{index} is cut off, or no index of weights; stage it anew") from None
        if missing := sorted({path.name for path in names.values() if not path.is_file()}):
            total = len(set(names.values()))
            raise Refusal(f"{directory} is incomplete: {_listed(missing)} missing, of {total} files; stage it anew")
        return names
    single = directory / _SINGLE
    if single.is_file():
        with _opened(single) as file:
            return dict.fromkeys(file.keys(), single)
    other = " (it holds .bin files, which are not read because loading one runs what is in it)"
    hint = other if any(directory.glob("*.bin")) else ""
    raise Refusal(f"{directory} holds neither {_INDEX} nor {_SINGLE}{hint}")


def _how_to_stage(directory: Path) -> str:
    """Return the command, where the name tells the model."""
    for name, repository in REPOSITORIES.items():
        if name in directory.name.lower() or repository.rpartition("/")[2].lower() in directory.name.lower():
            gate = "; it is gated: accept its licence on the Hub, and trn secret first" if repository in GATED else ""
            return f"trn stage hf://{repository} --to {directory} puts them there{gate}"
    return "trn stage hf://<organization>/<model> --to DIRECTORY puts them there"


def _opened(path: Path) -> Any:
    """Return a safetensors file, read by slices."""
    try:
        from safetensors import SafetensorError, safe_open
    except ImportError:
        raise Refusal("weights are read with the package safetensors, which this image lacks") from None
    try:
        return safe_open(str(path), framework="pt")
    except (SafetensorError, OSError) as error:
        raise Refusal(f"{path} is damaged or cut off ({error}); stage it anew") from None


def _part(file: Any, name: str, region: Region) -> Tensor:
    part: Tensor = file.get_slice(name)[region]
    return part


def _listed(names: list[str]) -> str:
    shown = ", ".join(names[:3])
    return f"{shown} and {len(names) - 3} more" if len(names) > 3 else shown


def configuration_beside(directory: Path) -> Configuration | None:
    """Return the configuration of ``config.json`` beside weights; None without one."""
    return read(directory / "config.json") if (directory / "config.json").is_file() else None
