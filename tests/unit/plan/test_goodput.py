"""Expected goodput of the gangs of a recorded program."""

import pytest
from hand_built import changed, environment, without

from trainium_eks.plan import goodput


def _with(training):
    return environment({"training": training})


def test_each_accelerator_group_is_a_gang_at_desired_and_maximum_size():
    found = goodput.expect(environment())
    assert [(gang.group, gang.instance_type, gang.nodes) for gang in found.gangs] == [
        ("trn1", "trn1.32xlarge", 2),
        ("trn1", "trn1.32xlarge", 4),
    ]
    two, four = found.gangs
    rested = changed(environment(), "trn1", scalingConfig={"minSize": 0, "desiredSize": 0, "maxSize": 4})
    assert [gang.nodes for gang in goodput.expect(rested).gangs] == [4]
    assert two.expected.run.seconds_between_faults == 2 * four.expected.run.seconds_between_faults
    assert two.expected.useful_fraction > four.expected.useful_fraction
    assert two.rate.is_assumed
    assert (two.hourly_usd, four.hourly_usd) == (pytest.approx(2 * 21.5), pytest.approx(4 * 21.5))
    assert two.usd_per_useful_hour == pytest.approx(two.hourly_usd / two.expected.useful_fraction)


def test_checkpoint_time_follows_the_file_systems_speed():
    graph = changed(_with({"checkpointGigabytes": 50}), "lustre", storageCapacity=2048, perUnitStorageThroughput=500)
    found = goodput.expect(graph)
    assert (found.state_gigabytes, found.megabytes_per_second) == (50, 1000)
    assert found.gangs[0].expected.run.beside_seconds == 50


def test_configured_fault_rate_is_used_with_spot_interruptions():
    calm = goodput.expect(_with({"failuresPerNodeYear": 0})).gangs[0].to_json()
    assert (calm["secondsBetweenFaults"], calm["failuresAssumed"]) == (None, False)  # JSON has no infinity
    often = goodput.expect(_with({"failuresPerNodeYear": "365.25"})).gangs[0]
    assert often.expected.run.seconds_between_faults == 43_200
    for training, counted in (({}, False), ({"failuresPerNodeYear": 100}, True)):
        spot = changed(_with(training), "trn1", capacityType="SPOT")
        assert goodput.expect(spot).to_json()["gangs"][0]["spotInterruptionsCounted"] is counted


def test_unknown_price_is_not_invented():
    graph = changed(environment(), "trn1-template", instanceType="trn9.48xlarge")
    gang = goodput.expect(graph).gangs[0]
    assert (gang.hourly_usd, gang.usd_per_useful_hour, gang.to_json()["usdPerUsefulHour"]) == (None, None, None)


def test_goodput_needs_a_file_system_and_accelerators():
    assert goodput.expect(without(environment(), "lustre")) is None
    assert goodput.expect(without(environment(), "trn1")) is None


@pytest.mark.parametrize(
    "training",
    ["often", {"checkpointGigabytes": -1}, {"checkpointGigabytes": "[unknown]", "failuresPerNodeYear": True}],
)
def test_a_foreign_programs_own_training_key_does_no_harm(training):
    assert goodput.expect(_with(training)) == goodput.expect(environment())
