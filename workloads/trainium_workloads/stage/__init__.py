"""Copier of data sets to the shared volume: ``python -m trainium_workloads.stage SOURCE --to DIRECTORY``.

boto3, huggingface_hub and urllib3 fetch the bytes. This package adds the promises of the destination:

- the destination appears whole, by one rename, with a marker and a manifest in it (:mod:`.destination`);
- a killed copy resumes, and fetches no whole file again (:mod:`.destination`);
- no file is placed with another checksum than its source's (:mod:`.copying`);
- one process writes a destination, others wait for it (:mod:`.destination`).
"""
