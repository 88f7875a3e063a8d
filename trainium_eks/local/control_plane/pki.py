"""Certificates and kubeconfigs of a stack's control plane. When any certificate cannot be used, all are made anew.

Two authorities, as in a cluster made by kubeadm: clients of the API server are not clients of etcd.
Keys are on the curve P-256, which takes milliseconds; RSA would be a tenth of the start-up.
"""

import ipaddress
import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from trainium_eks import whole_file
from trainium_eks.local.control_plane import credentials, kubelet
from trainium_eks.local.control_plane.credentials import ADMINISTRATOR, SERVICE_ACCOUNT, certificate, key, kubeconfig
from trainium_eks.local.control_plane.processes import write_json, writing
from trainium_eks.local.network import network
from trainium_eks.local.paths import Paths

VALID = timedelta(days=365)
RENEWED_BEFORE = timedelta(days=7)
"""A certificate that expires sooner is replaced at the next start."""


@dataclass(frozen=True)
class Certificate:
    """A certificate of one server, client or authority. Kubernetes reads its subject as a user and groups."""

    name: str
    user: str
    groups: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    """Names and addresses of a server; empty for clients and authorities."""
    authority: str = "ca"
    """Certificate of the signer; an authority signs its own."""

    @property
    def subject(self) -> x509.Name:
        """The user as the common name, and the groups as organizations."""
        organizations = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in self.groups]
        return x509.Name([*organizations, x509.NameAttribute(NameOID.COMMON_NAME, self.user)])

    @property
    def extensions(self) -> list[tuple[x509.ExtensionType, bool]]:
        """The permitted uses of the certificate, each with whether a reader must understand it."""
        signs = self.name == self.authority
        # The fields of RFC 5280, 4.2.1.3, in order: digital signature, and for authorities certificates and CRLs.
        usage = x509.KeyUsage(*(bit == 0 or (signs and bit in (5, 6)) for bit in range(9)))
        found: list[tuple[x509.ExtensionType, bool]] = [(x509.BasicConstraints(signs, None), True), (usage, True)]
        if self.hosts:
            found.append((x509.SubjectAlternativeName([_general_name(host) for host in self.hosts]), False))
        if not signs:
            # A server is a client, too: members of etcd are each other's.
            server = [ExtendedKeyUsageOID.SERVER_AUTH] if self.hosts else []
            found.append((x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH, *server]), False))
        return found


# The controller manager stands in for the controllers' service accounts; kwok and the pods' agent for all kubelets. All
# three are administrators, which also keeps the heartbeats of 1,000 nodes out of the queues for users.
_WITH_KUBECONFIG = (
    Certificate(ADMINISTRATOR, "kubernetes-admin", ("system:masters",)),
    Certificate("kube-controller-manager", "system:kube-controller-manager", ("system:masters",)),
    Certificate("kube-scheduler", "system:kube-scheduler"),
    Certificate("kwok", "system:kwok", ("system:masters",)),
    Certificate("trn-pod-agent", "system:trn-pod-agent", ("system:masters",)),
)


def _all(service_range: str) -> tuple[Certificate, ...]:
    # The agent relays the API server at the gateway, and the service `kubernetes` has the first address of its range.
    addresses = ("127.0.0.1", network.GATEWAY, str(ipaddress.ip_network(service_range)[1]), "localhost")
    service = ("kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local")
    return (
        Certificate("ca", "trn-local-ca"),
        Certificate("etcd-ca", "trn-local-etcd-ca", authority="etcd-ca"),
        Certificate(SERVICE_ACCOUNT, SERVICE_ACCOUNT, authority=SERVICE_ACCOUNT),
        Certificate("kube-apiserver", "kube-apiserver", hosts=addresses + service),
        Certificate("etcd", "etcd", hosts=("127.0.0.1", "localhost"), authority="etcd-ca"),
        Certificate("etcd-client", "kube-apiserver", authority="etcd-ca"),
        Certificate(kubelet.CERTIFICATE, kubelet.CERTIFICATE, hosts=(kubelet.HOST,)),
        # No group: it may do nothing at the API server. It is the API server's own, for the kubelet's port.
        Certificate(kubelet.CLIENT, kubelet.CLIENT_USER),
        *_WITH_KUBECONFIG,
    )


def ensure(paths: Paths, service_range: str) -> bool:
    """Make all certificates anew if any is missing, unreadable, about to expire or of another authority.

    The API server has the first address of the range of services. Return True when the certificates were made, for
    processes with the old ones must then be started again. Raise ClusterError where the directory cannot be written.
    """
    wanted = _all(service_range)
    if all(_is_usable(paths.pki, each) for each in wanted):
        return False
    making = paths.pki.with_name(f"{paths.pki.name}.new")
    with writing(paths.pki):
        shutil.rmtree(making, ignore_errors=True)
        making.mkdir(parents=True, mode=0o700)
        for each in wanted:
            _issue(making, each)
        shutil.rmtree(paths.pki, ignore_errors=True)
        making.rename(paths.pki)
    return True


def serving_certificate(paths: Paths, name: str, hosts: Sequence[str]) -> tuple[Path, Path, Path]:
    """Return the files of certificate, private key and authority for another server of the stack, such as a webhook.

    A certificate that can be used is kept. Raise ClusterError where the directory cannot be written.
    """
    _keep(paths, Certificate(name, hosts[0], hosts=tuple(hosts)))
    return certificate(paths, name), key(paths, name), certificate(paths, "ca")


def write_kubeconfigs(paths: Paths, server: str) -> None:
    """Write the kubeconfigs of the API server's clients; raise ClusterError where the directory cannot be written."""
    for each in _WITH_KUBECONFIG:
        user = f"trn-{paths.root.name}" if each.name == ADMINISTRATOR else each.user
        file = kubeconfig(paths, each.name)
        with writing(file):
            write_json(file, credentials.kubeconfig_document(paths, server, each.name, user))


def researcher_kubeconfig(paths: Paths, namespace: str, groups: Sequence[str], server: str) -> Path:
    """Return a kubeconfig of a user in these groups alone, with the namespace in its context.

    A certificate that can be used is kept. Raise ClusterError where the directory cannot be written.
    """
    wanted = Certificate(*credentials.researcher_names(namespace), groups=tuple(groups))
    _keep(paths, wanted)
    made, file = _load(paths.pki, wanted.name)[0], paths.kubeconfig_of(namespace)
    valid = (made.not_valid_before_utc.isoformat(), (made.not_valid_after_utc - RENEWED_BEFORE).isoformat())
    with writing(file):
        write_json(file, credentials.researcher(paths, server, namespace, groups, valid))
    return file


def service_account_kubeconfig(paths: Paths, program: str, namespace: str, account: str) -> Path:
    """Return the kubeconfig with which a program acts as a service account.

    As in EKS, the account's own roles limit the program. The API server queues the program's requests with those of all
    service accounts. The administrator's kubeconfig, which must be there, impersonates the account, because the common
    name of a certificate has at most 64 characters. Raise ClusterError where the directory cannot be written.
    """
    file = kubeconfig(paths, program)
    made = json.loads(kubeconfig(paths, ADMINISTRATOR).read_text())
    for each in made["users"]:
        each["user"]["as"] = f"system:serviceaccount:{namespace}:{account}"
    write_json(file, made)
    return file


_UNUSABLE = (OSError, ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm)


def _keep(paths: Paths, wanted: Certificate) -> None:
    if not _is_usable(paths.pki, wanted):
        with writing(paths.pki):
            _issue(paths.pki, wanted)


def _is_usable(directory: Path, wanted: Certificate) -> bool:
    """Return whether a certificate is readable with its key, current, of its authority, and as it should be."""
    try:
        made, private = _load(directory, wanted.name)
        made.verify_directly_issued_by(_load(directory, wanted.authority)[0])
        present = [each.value for each in made.extensions]
    except _UNUSABLE:
        return False
    now = datetime.now(UTC)
    return (
        private.public_key() == made.public_key()
        and made.subject == wanted.subject
        and all(each in present for each, _ in wanted.extensions)
        and made.not_valid_before_utc <= now <= made.not_valid_after_utc - RENEWED_BEFORE
    )


def _issue(directory: Path, wanted: Certificate) -> None:
    private = ec.generate_private_key(ec.SECP256R1())
    issuer, signing = wanted.subject, private
    if wanted.authority != wanted.name:
        authority, signing = _load(directory, wanted.authority)
        issuer = authority.subject
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .issuer_name(issuer)
        .subject_name(wanted.subject)
        .public_key(private.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))  # clocks that are set back a little
        .not_valid_after(now + VALID)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signing.public_key()), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(private.public_key()), critical=False)
    )
    for extension, critical in wanted.extensions:
        builder = builder.add_extension(extension, critical)
    pem = serialization.Encoding.PEM
    unencrypted = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    whole_file.write(directory / f"{wanted.name}.key", private.private_bytes(pem, *unencrypted))
    whole_file.write(directory / f"{wanted.name}.crt", builder.sign(signing, hashes.SHA256()).public_bytes(pem))


def _load(directory: Path, name: str) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    made = x509.load_pem_x509_certificate((directory / f"{name}.crt").read_bytes())
    private = serialization.load_pem_private_key((directory / f"{name}.key").read_bytes(), None)
    if not isinstance(private, ec.EllipticCurvePrivateKey):
        raise ValueError(f"{name}.key is of another kind")
    return made, private


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
