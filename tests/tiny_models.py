"""Models that are made in a second and know nothing, as transformers writes them; run where transformers is.

python tests/tiny_models.py DIRECTORY
"""

import sys
from pathlib import Path

TEXTS = ("a superb lamp", "a broken kettle, sent back", "my family loves it")
LABELS = ("negative", "positive")
CHAT = "{% for each in messages %}{{ each['role'] }}: {{ each['content'] }}\n{% endfor %}"


def make(place):
    """Writes a classifier, two more that always say the same (``negative``, ``positive``), and a ``generator``."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import (
        BertConfig,
        BertForSequenceClassification,
        LlamaConfig,
        LlamaForCausalLM,
        PreTrainedTokenizerFast,
    )

    torch.manual_seed(0)
    pieces = Tokenizer(models.BPE())
    pieces.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    pieces.decoder = decoders.ByteLevel()
    special, alphabet = ["<pad>", "<s>", "</s>"], pre_tokenizers.ByteLevel.alphabet()
    pieces.train_from_iterator(TEXTS, trainers.BpeTrainer(special_tokens=special, initial_alphabet=alphabet))
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=pieces, pad_token="<pad>", bos_token="<s>", eos_token="</s>", model_max_length=40
    )
    tokenizer.chat_template = CHAT
    small = {"vocab_size": len(tokenizer), "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    small |= {"num_attention_heads": 2, "max_position_embeddings": 64, "pad_token_id": 0}
    made = {"generator": LlamaForCausalLM(LlamaConfig(**small))}
    for name in ("classifier", *LABELS):
        config = BertConfig(
            **small, id2label=dict(enumerate(LABELS)), label2id={each: number for number, each in enumerate(LABELS)}
        )
        made[name] = BertForSequenceClassification(config)
        # Otherwise it gives all texts nearly the same score.
        torch.nn.init.normal_(made[name].bert.embeddings.word_embeddings.weight)
        torch.nn.init.normal_(made[name].classifier.weight)
        if name in LABELS:
            made[name].classifier.bias.data[LABELS.index(name)] = 100.0
    for name, model in made.items():
        model.save_pretrained(place / name)
        tokenizer.save_pretrained(place / name)


if __name__ == "__main__":
    make(Path(sys.argv[1]))
