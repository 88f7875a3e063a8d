"""BERT with a head for two classes of texts."""

from torch import Tensor, nn

from trainium_workloads.bert.model import Bert, Sizes, initialize

CLASSES = 2


class Polarity(nn.Module):
    """Equivalent of transformers' ``BertForSequenceClassification``, with the same names of parameters."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.sizes = sizes
        self.bert = Bert(sizes)
        self.dropout = nn.Dropout(sizes.dropout)
        self.classifier = nn.Linear(sizes.hidden, CLASSES)
        initialize(self)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Return logits, ``[texts, 2]``.

        Args:
            input_ids: pieces of the texts, ``[texts, length]``.
            attention_mask: 1 for a piece, 0 for padding, of the same shape.
        """
        _, pooled = self.bert(input_ids, input_ids.new_zeros(input_ids.shape), attention_mask)
        return self.classifier(self.dropout(pooled))
