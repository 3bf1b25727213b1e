"""Load models by name: a folder, an id on the Hub, a GGUF file, or a function of your own."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn

from taut._base.optional import needing

DTYPES = ("auto", "float16", "bfloat16", "float32", "float64")


def load(
    name: str,
    *,
    dtype: str = "auto",
    revision: str | None = None,
    trust_remote_code: bool = False,
    device: str = "cpu",
) -> nn.Module:
    """Load a model in evaluation mode.

    ``name`` is a folder or an id on the Hub, loaded as the class that its configuration names, a
    GGUF file, or ``module:function`` for a function without arguments that returns a module. The
    device ``auto`` spreads a model of Hugging Face over all devices.
    """
    if dtype not in DTYPES:
        raise ValueError(f"dtype must be one of {', '.join(DTYPES)}, got {dtype!r}")
    if ":" in name and not Path(name).exists():
        model = _own(name)
    else:
        given = {"revision": revision, "trust_remote_code": trust_remote_code}
        model = _hugging_face(name, given, dtype, spread=device == "auto")
    if device == "auto":
        return model.eval()
    if dtype != "auto":
        model = model.to(getattr(torch, dtype))
    try:
        return model.to(torch.device(device)).eval()
    except (RuntimeError, AssertionError) as error:
        raise ValueError(
            f"cannot use the device {device!r}: {str(error).splitlines()[0]}"
        ) from None


def gguf_parts(name: str) -> tuple[str, dict[str, Any]]:
    """Folder of a GGUF file, and the keyword that names the file, as transformers wants them."""
    if not name.lower().endswith(".gguf"):
        return name, {}
    return str(Path(name).parent), {"gguf_file": Path(name).name}


def _own(name: str) -> nn.Module:
    place, _, attribute = name.partition(":")
    if os.getcwd() not in sys.path:  # as `python -m` does
        sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(place)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{place}.".startswith(f"{error.name}."):
            raise  # the module is there; what it imports is not
        raise ValueError(f"cannot load {name}: {error}") from None
    try:
        found = getattr(module, attribute)
    except AttributeError as error:
        raise ValueError(f"cannot load {name}: {error}") from None
    model = found() if callable(found) and not isinstance(found, nn.Module) else found
    if not isinstance(model, nn.Module):
        given = f"an object of type {type(model).__name__}"
        raise TypeError(f"{name} gives {given}, not a torch.nn.Module")
    return model


def _may_be_an_id(name: str) -> bool:
    """Whether the Hub could know the name: "gpt2" or "owner/model", and no path."""
    return name[:1] not in "./~" and name.count("/") <= 1 and "\\" not in name


def _hugging_face(name: str, given: dict[str, Any], dtype: str, *, spread: bool) -> nn.Module:
    with needing("models by name need transformers", "hf"):
        import transformers
    if not sys.stderr.isatty():
        transformers.utils.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    place, gguf = gguf_parts(name)
    if gguf and not Path(name).is_file():
        raise ValueError(f"there is no file {name}")
    if Path(name).is_file() and not gguf:
        raise ValueError(f"{name} is a file; give the folder that holds config.json and weights")
    if not Path(name).exists() and not _may_be_an_id(name):
        raise ValueError(f"there is no folder {name}")
    if gguf:
        with needing(f"{name} needs gguf", "hf"):
            import gguf as _gguf  # noqa: F401  (transformers reads it with this)
    given = {**given, **gguf}
    try:
        config = transformers.AutoConfig.from_pretrained(place, **given)
    except ImportError as error:
        raise ImportError(f"cannot read {name!r}: {error}") from None
    except Exception as error:  # damaged files raise errors of all kinds
        where = "in this folder" if Path(name).is_dir() else "as a folder, and not on the Hub"
        why = (str(error) or type(error).__name__).splitlines()[0]
        raise ValueError(
            f"no model {name!r} {where}: {why}\nGive a folder with a "
            "config.json, a .gguf file, an id on the Hub (this needs a network), or "
            "module:function."
        ) from None
    kinds = [k for k in (config.architectures or []) if hasattr(transformers, k)]
    kind = getattr(transformers, kinds[0]) if kinds else transformers.AutoModel
    if gguf and not kinds:
        kind = transformers.AutoModelForCausalLM
    if spread:
        with needing("models over several devices need accelerate", "hf"):
            import accelerate  # noqa: F401  (transformers spreads them with this)
        given["device_map"] = "auto"
    wanted = dtype if spread or gguf else "auto"
    try:
        model: nn.Module = kind.from_pretrained(
            place, dtype="float32" if gguf and wanted == "auto" else wanted, **given
        )
    except ImportError:
        raise
    except Exception as error:  # damaged files raise errors of all kinds
        why = (str(error) or type(error).__name__).splitlines()[0]
        raise ValueError(f"cannot load the weights of {name!r}: {why}") from None
    return model
