"""Answers of a trained model over HTTP: ``python -m trainium_workloads.serving.server MODEL --port 8080``.

LitServe serves a classifier: ``POST /predict`` takes ``{"texts": ["…"]}`` and answers ``{"predictions": [{"label":
"positive", "score": 0.98}]}``. ``transformers serve`` serves a model that generates text, by OpenAI's API: ``POST
/v1/chat/completions``. Both listen once the model has answered, ``GET /health`` is 200 from then on. ``GET
/drain`` announces the end, and SIGTERM ends them when all requests are answered.
"""

import argparse
import sys

from trainium_workloads.serving import served_model
from trainium_workloads.training.refusal import RefusalError, guarded

_REMEDIES = {
    "cuda": "serve it with --engine vllm, or slower with --engine transformers",
    "neuron": "serve it with --engine vllm and an --image with vLLM for Neuron",
    "xla": "there is no vLLM for Inferentia2 and Trn1; serve it on GPUs, on Trn2 or later, or on CPUs",
}


def main() -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    served_model.add_options(parser)
    engines = ("auto", "classifier", "transformers")
    parser.add_argument("--engine", choices=engines, default="auto", help="default: by the model's config.json")
    parser.add_argument("--name", default="model", help="name in requests of a model that generates text")
    parser.add_argument("--copies", type=int, default=1, help="processes, each with a core (xla); default: 1")
    parser.add_argument("--host", default="0.0.0.0", choices=("0.0.0.0", "127.0.0.1"), help="default: all addresses")
    parser.add_argument("--port", type=int, default=8080, help="default: %(default)s")
    parser.add_argument("--linger", type=float, default=5.0, help="seconds that GET /drain takes; default: %(default)s")
    options = parser.parse_args()
    model, engine = options.model, options.engine
    if options.copies < 1 or (options.copies > 1 and options.backend != "xla"):
        raise RefusalError(f"--copies must be 1, or with --backend xla more, not {options.copies}")
    if served_model.is_classifier(model):
        if engine == "transformers":
            raise RefusalError(f"{model} is a classifier: serve it with --engine classifier")
        from trainium_workloads.serving.classifier import serve
    elif engine == "classifier":
        raise RefusalError(f"{model} generates text: serve it with --engine transformers or vllm")
    elif options.backend != "cpu" and (options.backend, engine) != ("cuda", "transformers"):
        raise RefusalError(f"{model} generates text, which needs another server here: {_REMEDIES[options.backend]}")
    else:
        from trainium_workloads.serving.generator import serve
    serve(options)
    return 0


if __name__ == "__main__":
    sys.exit(guarded(main))
