"""The lists of faults fit the code: `make test` notices a stale fault, not only `make test-all` an hour later."""

import mutate


def test_each_listed_fault_fits_the_code():
    lists = {path.stem: mutate.load(path) for path in sorted(mutate.LISTS.glob("*.yaml"))}
    assert lists
    assert not list(mutate.faults_of_lists(lists))
