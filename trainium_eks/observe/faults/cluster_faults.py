"""Faults of the cluster: its API, nodes, devices, add-ons, namespaces, queues and volumes."""

from trainium_eks.observe.faults.fault import Fault

FAULTS = (
    # --- API ----------------------------------------------------------------------------------------------------------
    Fault(
        "api-unauthorized",
        "The API server refuses the credentials.",
        "The identity has no access entry in the cluster, or its token or certificate is of another cluster.",
        "check the identity (aws sts get-caller-identity), then have it added to `principals`; on the local cloud: "
        "trn local up",
        "EKS user guide, access entries",
        event=r"refuses this machine's credentials|\b401\b|Unauthorized",
    ),
    Fault(
        "certificate-ended",
        "A connection to the API server ends with a certificate error.",
        "The certificate has ended, the clock of one side is wrong, or the kubeconfig is of an earlier cluster.",
        "compare the clock (date -u), then write the kubeconfig anew: aws eks update-kubeconfig; on the local cloud: "
        "trn local up",
        "Kubernetes, PKI certificates and requirements",
        "CertificateEnding",
        event=r"certificate (has expired|verify failed|is not (yet )?valid)|x509:|CERTIFICATE_VERIFY_FAILED",
    ),
    Fault(
        "api-name-unknown",
        "The name of the API server has no address here.",
        "No DNS from this machine, or a private endpoint whose name resolves in its VPC alone.",
        "see whether this machine resolves other names; from outside the VPC use a way in (docs/deploying.md)",
        "EKS user guide, cluster endpoint access",
        event=r"name resolution|Name or service not known|nodename nor servname|getaddrinfo",
    ),
    Fault(
        "api-unreachable",
        "The API server does not answer.",
        "It does not run, the network is in the way, or a stack's local cloud has been stopped.",
        "on the local cloud: trn local up; on AWS compare `cluster.publicAccessCidrs` with this machine's address",
        "EKS user guide, cluster endpoint access",
    ),
    # --- Nodes --------------------------------------------------------------------------------------------------------
    Fault(
        "node-not-ready",
        "A node is not Ready, and its pods are given up after minutes.",
        "Its kubelet does not report: the machine is broken or gone, or its network plugin (aws-node) does not run.",
        "an administrator looks: kubectl describe node {node}; EKS replaces a broken one within minutes, and one that "
        "was never Ready usually lacks its network plugin (aws-node)",
        "Kubernetes, node status; blueprints 3.1.25",
        "NodeNotRepaired",
    ),
    Fault(
        "node-cordoned",
        "A node takes no pods.",
        "A person, an upgrade or a repair has cordoned it.",
        "an administrator lets pods on it again, once whoever cordoned it agrees: kubectl uncordon {node}",
        "Kubernetes, safely drain a node",
    ),
    Fault(
        "node-pressure",
        "A node is short of disk, memory or process ids, and evicts pods.",
        "Images, logs or files of pods fill its root volume, or pods without limits its memory.",
        "kubectl describe node {node} names the resource; free it, or replace the node: kubectl drain {node} "
        "--ignore-daemonsets --delete-emptydir-data",
        "Kubernetes, node-pressure eviction",
    ),
    Fault(
        "accelerator-unhealthy",
        "A node reports broken accelerators.",
        "The EKS node monitoring agent, or Neuron's problem detector, has seen an error of the hardware.",
        "EKS replaces the node after ten minutes; before that: kubectl describe node {node}",
        "EKS user guide, node health",
        "AcceleratorUnhealthy",
    ),
    Fault(
        "devices-not-shown",
        "A node offers no Neuron devices (or GPUs), and no job starts on it.",
        "The device plugin has not registered: its pod does not run there, it does not tolerate a taint, or the AMI "
        "has no driver.",
        "the {plugin} has not registered on {node}: kubectl -n kube-system get pods -o wide --field-selector "
        "spec.nodeName={node}, then its log; {ami}",
        "S2 troubleshooting, GPU not visible; blueprints 3.1.4, 3.1.9",
    ),
    Fault(
        "efa-not-shown",
        "A node offers no EFA interfaces, and jobs that need them wait.",
        "The EFA device plugin does not run there, the type is not among its labels, or the launch template has no EFA "
        "interface.",
        "the EFA device plugin has not registered on {node}: kubectl -n kube-system get pods -o wide --field-selector "
        "spec.nodeName={node}, then its log; {ami}",
        "S2 troubleshooting, EFA not working; blueprints 3.1.8",
    ),
    Fault(
        "devices-withdrawn",
        "A node that had devices offers none of them.",
        "The device plugin has stopped, or reports every device as unhealthy.",
        "the {plugin} on {node} has stopped, or reports every device as unhealthy: kubectl -n kube-system get pods -o "
        "wide --field-selector spec.nodeName={node}, then its log",
        "Kubernetes, device plugins",
    ),
    Fault(
        "devices-ill",
        "A node offers fewer devices than it has.",
        "The device plugin reports some of them as unhealthy.",
        "the {plugin} reports unhealthy devices on {node}; replace the machine: kubectl drain {node} "
        "--ignore-daemonsets --delete-emptydir-data, then aws ec2 terminate-instances --instance-ids {instance}",
        "Kubernetes, device plugins",
        "AcceleratorUnhealthy",
    ),
    Fault(
        "devices-of-another-type",
        "A node has another number of devices or EFA interfaces than its type.",
        "The launch template has other interfaces, the driver is too old for the type, or a device is broken.",
        "{look}; pulumi up mends the template; replace the node where that is right",
        "EC2, EFA interfaces by instance type; blueprints 3.1.25",
    ),
    Fault(
        "hugepages-missing",
        "Pods ask for huge pages, and the node has none, or too few.",
        "User data has not set them, or set them after the kubelet had started.",
        "set `hugepages2Mi` of the node group and replace its nodes, or take `hugepages-2Mi` out of the job: grep Huge "
        "/proc/meminfo on {node}",
        "aws-pitfalls 10; Kubernetes, huge pages",
    ),
    Fault(
        "nodes-missing",
        "A group has fewer nodes than the stack says.",
        "Its Auto Scaling group cannot start them, they do not join, or somebody scaled it.",
        "{look}",
        "blueprints 3.1.17",
    ),
    Fault(
        "capacity-insufficient",
        "The autoscaler asks for nodes, and none comes.",
        "EC2 has no capacity of the type in the zone; a placement group that a reservation does not know has the same "
        "words.",
        "wait, or use reserved capacity (`capacity` of the group) or another zone; what EC2 says: kubectl describe "
        "nodeclaims; aws autoscaling describe-scaling-activities --region {region}",
        "blueprints 3.1.7, 3.1.17",
        event=r"InsufficientInstanceCapacity|InsufficientCapacity|did not have enough capacity|no capacity|"
        r"MaxSpotInstanceCountExceeded|ReservationCapacityExceeded",
    ),
    Fault(
        "aws-quota-reached",
        "EC2 refuses to start nodes for a quota.",
        "The account's quota of vCPUs for the instance family is used up.",
        "have it raised, and compare before: trn check --stack {stack}",
        "EC2 service quotas; reliability 22",
        event=r"VcpuLimitExceeded|InstanceLimitExceeded",
    ),
    Fault(
        "addresses-exhausted",
        "Pods stay in ContainerCreating: no address can be assigned.",
        "The subnet has no free addresses: each EFA interface and each pod takes one.",
        "end pods, or add a subnet: trn plan shows the budget of addresses; kubectl -n kube-system logs ds/aws-node",
        "VPC CNI, InsufficientFreeAddresses",
        event=r"failed to assign an IP address|InsufficientFreeAddresses|InsufficientCidrBlocks",
    ),
    # --- Add-ons ------------------------------------------------------------------------------------------------------
    Fault(
        "plugin-not-running",
        "A device plugin does not run on all nodes that need it.",
        "Its pods fail, it is not installed, or it tolerates other taints than the nodes have.",
        "{look}",
        "S2 troubleshooting, GPU not visible, EFA not working; blueprints 3.1.9",
        "AcceleratorUnhealthy",
    ),
    Fault(
        "dns-not-running",
        "Names do not resolve in pods: rendezvous and downloads fail.",
        "CoreDNS does not run: it has no node, or somebody scaled it to zero.",
        "{look}",
        "Kubernetes, debugging DNS resolution",
    ),
    Fault(
        "workload-not-running",
        "An add-on or a chart does not run as it should.",
        "Its pods fail, have no node, or somebody changed or removed it.",
        "{look}",
        "blueprints 3.1",
    ),
    Fault(
        "volcano-process-down",
        "Jobs are not placed, or not even seen.",
        "A process of Volcano (scheduler, controllers or admission) does not run.",
        "{look}",
        "blueprints 3.1.13",
        "GangStuck",
    ),
    Fault(
        "volcano-absent",
        "Jobs are checked but not scheduled: Volcano does not run on this machine.",
        "The local cloud has found none of Volcano's programs, and could not build them.",
        "docs/local-cloud.md says where Volcano's programs come from; then: trn local up",
        "docs/local-cloud.md",
    ),
    Fault(
        "volcano-scheduler-silent",
        "Volcano's scheduler does not look at a job.",
        "It does not run, or hangs.",
        "an administrator looks: {log}",
        "blueprints 3.1.13",
        "GangStuck",
    ),
    Fault(
        "volcano-controllers-silent",
        "Volcano's controllers do not see a job.",
        "They do not run, or lag far behind.",
        "an administrator looks: {log}",
        "blueprints 3.1.13",
        "GangStuck",
    ),
    Fault(
        "webhook-not-answering",
        "Jobs and pods are refused with `failed calling webhook`.",
        "Nothing answers behind an admission webhook whose failurePolicy is Fail, or its certificate is not trusted.",
        "{look}; without its service no request passes: kubectl get {kind} {webhook} -o yaml",
        "blueprints 3.1.13",
        "WebhookFailing",
        event=r"failed calling webhook|no endpoints available for service",
    ),
    Fault(
        "hypernodes-doubled",
        "Volcano knows a part of the network twice and places no job by it.",
        "A person, or Volcano's own discovery, has made HyperNodes beside the controller's.",
        "an administrator deletes the surplus: kubectl delete hypernodes.topology.volcano.sh {hypernodes}",
        "volcano#5877; findings-3 J4",
    ),
    Fault(
        "hypernodes-outdated",
        "The HyperNodes are not those of the nodes' labels.",
        "Their controller does not run, or may not write.",
        "its controller says why: {log}",
        "findings-3 J4",
    ),
    # --- Teams --------------------------------------------------------------------------------------------------------
    Fault(
        "namespace-terminating",
        "A namespace stays Terminating, and nothing can be made in it.",
        "An object in it has a finalizer whose controller is gone.",
        "kubectl get namespace {namespace} -o yaml names what remains in it; start the controller of the finalizer "
        "again, or take the finalizer off those objects with kubectl edit",
        "blueprints 3.1.18",
    ),
    Fault(
        "namespace-missing",
        "A team's namespace does not exist.",
        "The last update did not finish, or somebody deleted it.",
        "{deploy} makes it",
        "findings A8",
    ),
    Fault(
        "service-account-missing",
        "Pods of a team are refused: there is no service account.",
        "Somebody deleted it; without it pods have no identity in AWS either.",
        "{deploy} makes it, with its pod identity association",
        "EKS user guide, pod identities",
        event=r'serviceaccount "[^"]*" not found|error looking up service account',
    ),
    Fault(
        "queue-missing",
        "A job names a queue that does not exist, and waits for ever.",
        "Its name is wrong, or an update failed before the queue was made.",
        "submit it to one of {queues}; a queue of the stack comes again with {deploy}",
        "blueprints 3.1.2 (data-on-eks#403)",
        "GangStuck",
    ),
    Fault(
        "queue-closed",
        "A queue starts no jobs.",
        "Somebody closed it; an update does not open it.",
        "an administrator opens it: vcctl queue operate --name {queue} --action open",
        "findings G4",
        "GangStuck",
    ),
    Fault(
        "queue-guarantees-too-large",
        "Jobs wait although nodes are idle: queues reserve more than the nodes have.",
        "Volcano keeps a queue's guarantee even where the nodes cannot meet it.",
        "let more nodes stay (`desiredSize` of a group), or guarantee less",
        "findings G10",
        "GangStuck",
    ),
    # --- Volumes ------------------------------------------------------------------------------------------------------
    Fault(
        "claim-missing",
        "A job names a volume claim that does not exist.",
        "Its name is wrong, or somebody deleted the claim.",
        "submit it anew with one that is there, after: trn cancel {job}",
        "S2 troubleshooting, storage issues",
    ),
    Fault(
        "claim-not-bound",
        "A volume claim is Pending or Lost, and pods that mount it wait.",
        "It names no storage class or a missing one, its volume is gone, or no driver makes it.",
        "what it waits for: kubectl -n {namespace} describe pvc {claim}; a Lost one must be deleted, then {deploy}",
        "S2 troubleshooting, storage issues",
    ),
    Fault(
        "mount-failed",
        "A pod waits: a volume does not mount.",
        "The security group does not let Lustre through (988, 1018-1023), the node has no Lustre client, or the "
        "file system is gone.",
        "kubectl -n {namespace} describe pod {pod}; trn verify says what is wrong with the storage",
        "S2 troubleshooting, storage issues; blueprints 3.1.14; aws-pitfalls 2",
    ),
    Fault(
        "mount-path-refused",
        "A container cannot be made for a path in its volume.",
        "`subPath` leads out of the volume, through a link or `..`.",
        "name a directory of the volume in `subPath`, and submit anew: trn cancel {job}",
        "findings-3 J5; Kubernetes, subPath",
        event=r"subPath",
    ),
    Fault(
        "storage-class-missing",
        "A claim without a class waits for ever.",
        "No storage class is the default, or two are.",
        "{look}",
        "aws-pitfalls, needs of real users",
    ),
    Fault(
        "not-as-declared",
        "The cluster is not as its stack says.",
        "Somebody changed it by hand, or an update did not finish.",
        "{look}",
        "docs/local-cloud.md",
    ),
)
