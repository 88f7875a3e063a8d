"""Copier of data sets to the shared volume: ``python -m trainium_workloads.stage SOURCE --to DIRECTORY``.

Standard library alone, so that any Python image runs it. Its promises, and their modules:

- the destination appears whole, by one rename, with a marker in it (:mod:`.destination`);
- it may be killed at any time and resumes where it was (:mod:`.transfer`, :mod:`.destination`);
- no file is placed with another checksum than its source's (:mod:`.checksums`);
- one process writes a destination, others wait for it (:mod:`.destination`);
- memory does not grow with the size of the files (:mod:`.transfer`).
"""
