"""Series of metrics: their exporters, their names, and the series recorded from them."""
