from unit.components.parts import LEAST, releases

from components.neuron_addons import NeuronAddons
from trainium_eks.model.catalogue.instance_entries import with_entries
from trainium_eks.model.catalogue.instances import CATALOGUE


def test_monitor_knows_every_neuron_type_of_catalogue_and_config(record):
    """R62: upstream's own manifest leaves trn2 out without a word."""
    known = with_entries(CATALOGUE, {"trn3.48xlarge": {"like": "trn2.48xlarge"}})
    graph = record(lambda: NeuronAddons("neuron", {**LEAST["NeuronAddons"], "catalogue": known}) and None)
    types = releases(graph)["neuron-monitor"].inputs["values"]["instanceTypes"]
    assert set(types) == {name for name, kind in known.items() if kind.family == "neuron"} > {"trn3.48xlarge"}
