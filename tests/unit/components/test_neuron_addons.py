from unit.components.parts import LEAST, recorder, releases

from components.neuron_addons import NeuronAddons
from trainium_eks.model.catalogue import versions
from trainium_eks.model.catalogue.instance_entries import with_entries
from trainium_eks.model.catalogue.instances import CATALOGUE

NEURON_TOLERATION = {"key": "aws.amazon.com/neuron", "operator": "Exists", "effect": "NoSchedule"}
ARGS = LEAST["NeuronAddons"]
built = recorder(NeuronAddons, "neuron", ARGS)


def installed(record, **more):
    return releases(built(record, **more))


def test_monitor_knows_every_neuron_type_of_catalogue_and_config(record):
    """R62: upstream's own manifest leaves trn2 out without a word."""
    catalogue = with_entries(CATALOGUE, {"trn3.48xlarge": {"like": "trn2.48xlarge"}})
    neuron = {name for name, kind in CATALOGUE.items() if kind.family == "neuron"}
    for more, types in (({}, neuron), ({"catalogue": catalogue}, {*neuron, "trn3.48xlarge"})):
        values = installed(record, **more)["neuron-monitor"].inputs["values"]
        assert set(values["instanceTypes"]) == types
        assert values["tolerations"] == [NEURON_TOLERATION]
        assert values["image"] == versions.IMAGES["neuron-monitor"]
