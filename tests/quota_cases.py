"""Names and amounts of quotas: the model and a real API server are asked about the same ones."""

TAKEN = {
    "requests.aws.amazon.com/neuron": "64",
    "requests.nvidia.com/gpu": "8",
    "cpu": "500m",
    "requests.cpu": "1e3",
    "limits.memory": "1.5Ti",
    "requests.storage": "1e12",
    "requests.ephemeral-storage": "100Gi",
    "pods": "200",
    "services.loadbalancers": "0",
    "count/jobs.batch": "100",
    "count/pods": "100",
    "count/jobs.batch.volcano.sh": "100",
    "fsx.storageclass.storage.k8s.io/requests.storage": "2400Gi",
    "fsx.storageclass.storage.k8s.io/persistentvolumeclaims": "0",
    "hugepages-2Mi": "1Gi",
    "requests.hugepages-1Gi": "4Gi",
}
REFUSED = {
    "gpus": "8",
    "requests.neuron": "64",
    "neuron": "64",
    "storage": "1Gi",
    "limits.pods": "3",
    "requests.pods": "3",
    "hugepages": "1Gi",
    "pods": "1.5",
    "configmaps": "500m",
    "count/jobs.batch": "1.5",
    "cpu": "-1",
    "memory": "1 Gi",
    "requests.memory": "1GB",
    "requests.cpu": "many",
    "requests.storage": "",
    "Pods": "3",
}
USELESS = {"aws.amazon.com/neuron": "64", "limits.aws.amazon.com/neuron": "64", "requests.nvidia.com/gpu": "1.5"}
"""Taken by the API server, which never counts the first two, and of the third no part of a device."""
