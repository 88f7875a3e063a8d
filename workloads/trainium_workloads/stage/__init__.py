"""Copies a data set to the shared volume: ``python -m trainium_workloads.stage SOURCE --to DIRECTORY``.

Standard library alone, so that any Python image runs it. What it promises, and where:

- the destination appears whole, by one rename, with a marker in it (:mod:`.destination`);
- it may be killed at any time and goes on where it was (:mod:`.transfer`, :mod:`.destination`);
- nothing is placed whose checksum differs from what the source says (:mod:`.checksums`);
- one process writes a destination, others wait for it (:mod:`.destination`);
- memory does not grow with the size of the files (:mod:`.transfer`).
"""
