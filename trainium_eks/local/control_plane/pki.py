"""Certificates of a stack's control plane: made anew as a whole when any of them cannot be used.

Two authorities, as in a cluster made by kubeadm: what the API server accepts as a client is none for etcd.
Keys are on the curve P-256, which takes milliseconds; RSA would be a tenth of the start-up.
"""

import base64
import ipaddress
import json
import os
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

from trainium_eks.local.control_plane import kubelet
from trainium_eks.local.control_plane.processes import unwritable
from trainium_eks.local.network import network
from trainium_eks.local.paths import Paths
from trainium_eks.model.kubeconfig import document

VALID = timedelta(days=365)
"""How long a certificate is valid."""

RENEWED_BEFORE = timedelta(days=7)
"""A certificate that ends sooner is made anew at the next start."""

API_SERVER_HOSTS = (
    "127.0.0.1",
    network.GATEWAY,  # pods that run here reach it there
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
)
"""What the API server's certificate is for, besides the service ``kubernetes``."""


@dataclass(frozen=True)
class Identity:
    """Who a client certificate says its holder is."""

    name: str
    """Of the files."""
    user: str
    group: str = ""
    authority: str = "ca"


ADMINISTRATOR = "admin"

# The controller manager stands in for the controllers' many service accounts and kwok for all kubelets, so both are
# administrators; that also keeps 1,000 nodes' heartbeats out of the queues for users (priority and fairness).
IDENTITIES = (
    Identity(ADMINISTRATOR, "kubernetes-admin", "system:masters"),
    Identity("kube-controller-manager", "system:kube-controller-manager", "system:masters"),
    Identity("kube-scheduler", "system:kube-scheduler"),
    Identity("kwok", "system:kwok", "system:masters"),
    # The pods' agent stands in for the kubelets of all nodes, too.
    Identity("trn-pod-agent", "system:trn-pod-agent", "system:masters"),
    # No group: it may do nothing at the API server. It is the API server's own, for the kubelet's port.
    Identity(kubelet.CLIENT, kubelet.CLIENT_USER),
    Identity("etcd-client", "kube-apiserver", authority="etcd-ca"),
)
"""The clients of the API server and of etcd."""


@dataclass(frozen=True)
class _Server:
    name: str
    hosts: tuple[str, ...]
    authority: str = "ca"


def _servers(service_range: str) -> tuple[_Server, ...]:
    # The service `kubernetes` has the first address of the range.
    service = str(ipaddress.ip_network(service_range)[1])
    return (
        _Server("kube-apiserver", (*API_SERVER_HOSTS, service)),
        _Server("etcd", ("127.0.0.1", "localhost"), "etcd-ca"),
        _Server(kubelet.CERTIFICATE, (kubelet.HOST,)),
    )


_AUTHORITIES = ("ca", "etcd-ca")
_SERVICE_ACCOUNT = "service-account"


def certificate(paths: Paths, name: str) -> Path:
    """The file of a certificate: ``ca``, ``etcd-ca``, ``kube-apiserver``, ``etcd``, an identity's, a server's."""
    return paths.pki / f"{name}.crt"


def key(paths: Paths, name: str) -> Path:
    """The file of its private key; also ``service-account``."""
    return paths.pki / f"{name}.key"


def service_account_public_key(paths: Paths) -> Path:
    """What service accounts' tokens are verified with."""
    return paths.pki / f"{_SERVICE_ACCOUNT}.pub"


def kubeconfig(paths: Paths, identity: str) -> Path:
    """The kubeconfig of an identity: the administrator's is the one for people."""
    return paths.kubeconfig if identity == ADMINISTRATOR else paths.pki / f"{identity}.kubeconfig"


def ensure(paths: Paths, service_range: str) -> bool:
    """Makes all certificates anew if any is missing, unreadable, about to expire or not of its authority.

    Args:
        paths: the stack's files.
        service_range: addresses of services, of which the API server has one.

    Returns:
        True when they were made, so that whoever runs with the old ones must be started again.

    Raises:
        ClusterError: the directory cannot be written.
    """
    servers = _servers(service_range)
    if _is_whole(paths, servers):
        return False
    making = paths.pki.with_name(f"{paths.pki.name}.new")
    try:
        shutil.rmtree(making, ignore_errors=True)
        making.mkdir(parents=True, mode=0o700)
        _make_all(making, servers)
        shutil.rmtree(paths.pki, ignore_errors=True)
        making.rename(paths.pki)
    except OSError as error:
        raise unwritable(error, paths.pki) from error
    return True


def write_kubeconfigs(paths: Paths, server: str) -> None:
    """Writes every identity's kubeconfig for an API server at that address, with its certificates embedded.

    Raises:
        ClusterError: the directory cannot be written.
    """
    for identity in IDENTITIES:
        if identity.authority == "ca" and identity.name != kubelet.CLIENT:
            user = f"trn-{paths.root.name}" if identity.name == ADMINISTRATOR else identity.user
            _keep_kubeconfig(paths, kubeconfig(paths, identity.name), server, identity.name, user)


def researcher_kubeconfig(paths: Paths, namespace: str, groups: Sequence[str], server: str) -> Path:
    """A kubeconfig whose holder is in these groups and in no other, with its context in the namespace.

    Its certificate is kept while it can be used.

    Args:
        paths: the stack's files; :func:`ensure` has made its authority.
        namespace: the team's.
        groups: of Kubernetes; at least one.
        server: address of the API server.

    Raises:
        ClusterError: the directory cannot be written.
    """
    # X.509 limits a common name to 64 characters; what matters is the group.
    name, user = f"researcher-{namespace}", f"researcher@{namespace}"[:64]
    subject = _subject(user, *groups)
    if not _is_signed(paths, name, "ca", (), subject):
        try:
            _issue(paths.pki, name, subject, _load(paths.pki, "ca"), client=True)
        except OSError as error:
            raise unwritable(error, paths.pki) from error
    file = paths.kubeconfig_of(namespace)
    _keep_kubeconfig(paths, file, server, name, user, namespace)
    return file


def service_account_kubeconfig(paths: Paths, program: str, namespace: str, account: str) -> Path:
    """Return the kubeconfig with which a program acts as a service account.

    As in EKS, the account's own roles limit the program, and the API server queues its requests with those of other
    service accounts. The administrator's certificate impersonates the account, because a certificate's common name has
    at most 64 characters.

    Args:
        paths: the stack's files; :func:`write_kubeconfigs` has written the administrator's kubeconfig.
        program: name of the program, and of the file.
        namespace: of the service account.
        account: name of the service account.

    Raises:
        ClusterError: the directory cannot be written.
    """
    file = paths.pki / f"{program}.kubeconfig"
    try:
        made = json.loads(kubeconfig(paths, ADMINISTRATOR).read_text())
        for each in made["users"]:
            each["user"]["as"] = f"system:serviceaccount:{namespace}:{account}"
        _write(file, (json.dumps(made, indent=2) + "\n").encode())
    except OSError as error:
        raise unwritable(error, file) from error
    return file


def serving_certificate(paths: Paths, name: str, hosts: Sequence[str]) -> tuple[Path, Path, Path]:
    """A certificate for another server of the stack, such as a webhook's; kept while it can be used.

    Args:
        paths: the stack's files; :func:`ensure` has made its authority.
        name: of the files.
        hosts: names and addresses that the certificate is for.

    Returns:
        The files of certificate, private key and authority.

    Raises:
        ClusterError: the directory cannot be written.
    """
    files = certificate(paths, name), key(paths, name), certificate(paths, "ca")
    if not _is_signed(paths, name, "ca", hosts):
        try:
            authority = _load(paths.pki, "ca")
            _issue(paths.pki, name, _subject(hosts[0]), authority, hosts=hosts)
        except OSError as error:
            raise unwritable(error, paths.pki) from error
    return files


def certificate_authority_data(paths: Paths) -> str:
    """The authority's certificate as kubeconfigs and webhook configurations hold it: PEM in base64."""
    return _base64(certificate(paths, "ca"))


_Pair = tuple[x509.Certificate, ec.EllipticCurvePrivateKey]
_BROKEN = (OSError, ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm, x509.ExtensionNotFound)


def _make_all(directory: Path, servers: Sequence[_Server]) -> None:
    authorities = {name: _issue(directory, name, _subject(f"trn-local-{name}"), None) for name in _AUTHORITIES}
    for server in servers:
        _issue(directory, server.name, _subject(server.name), authorities[server.authority], hosts=server.hosts)
    for identity in IDENTITIES:
        subject = _subject(identity.user, identity.group)
        _issue(directory, identity.name, subject, authorities[identity.authority], client=True)
    signing = ec.generate_private_key(ec.SECP256R1())
    _write(directory / f"{_SERVICE_ACCOUNT}.key", _private_pem(signing))
    public = signing.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    _write(directory / f"{_SERVICE_ACCOUNT}.pub", public)


def _issue(
    directory: Path,
    name: str,
    subject: x509.Name,
    authority: _Pair | None,
    *,
    hosts: Sequence[str] = (),
    client: bool = False,
) -> _Pair:
    """Makes a certificate and its key: an authority's own, a server's for hosts, or a client's."""
    private = ec.generate_private_key(ec.SECP256R1())
    issuer, signing = (authority[0].subject, authority[1]) if authority else (subject, private)
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(private.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))  # clocks that are set back a little
        .not_valid_after(now + VALID)
        .add_extension(x509.BasicConstraints(ca=authority is None, path_length=None), critical=True)
        .add_extension(_usage(authority is None), critical=True)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signing.public_key()), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(private.public_key()), critical=False)
    )
    if hosts:
        builder = builder.add_extension(x509.SubjectAlternativeName(_names(hosts)), critical=False)
    if hosts or client:
        # A server's may be shown to its like, too: etcd's members are each other's clients.
        purposes = [ExtendedKeyUsageOID.CLIENT_AUTH, *([ExtendedKeyUsageOID.SERVER_AUTH] if hosts else [])]
        builder = builder.add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
    made = builder.sign(signing, hashes.SHA256())
    _write(directory / f"{name}.key", _private_pem(private))
    _write(directory / f"{name}.crt", made.public_bytes(serialization.Encoding.PEM))
    return made, private


def _usage(authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=authority,
        crl_sign=authority,
        encipher_only=False,
        decipher_only=False,
    )


def _is_whole(paths: Paths, servers: Sequence[_Server]) -> bool:
    try:
        for name in _AUTHORITIES:
            made, _ = _load(paths.pki, name)
            if not _is_current(made):
                return False
        signing = serialization.load_pem_private_key(key(paths, _SERVICE_ACCOUNT).read_bytes(), None)
        public = serialization.load_pem_public_key(service_account_public_key(paths).read_bytes())
        if signing.public_key() != public:
            return False
    except _BROKEN:
        return False
    return all(_is_signed(paths, server.name, server.authority, server.hosts) for server in servers) and all(
        _is_signed(paths, identity.name, identity.authority, (), _subject(identity.user, identity.group))
        for identity in IDENTITIES
    )


def _is_signed(paths: Paths, name: str, authority: str, hosts: Sequence[str], subject: x509.Name | None = None) -> bool:
    """Whether a certificate can be used: readable with its key, current, of the authority, for these hosts."""
    try:
        made, private = _load(paths.pki, name)
        made.verify_directly_issued_by(_load(paths.pki, authority)[0])
        if hosts:
            names = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
            if list(names) != _names(hosts):
                return False
        return _is_current(made) and private.public_key() == made.public_key() and subject in (None, made.subject)
    except _BROKEN:
        return False


def _is_current(made: x509.Certificate) -> bool:
    now = datetime.now(UTC)
    return made.not_valid_before_utc <= now and now + RENEWED_BEFORE <= made.not_valid_after_utc


def _load(directory: Path, name: str) -> _Pair:
    made = x509.load_pem_x509_certificate((directory / f"{name}.crt").read_bytes())
    private = serialization.load_pem_private_key((directory / f"{name}.key").read_bytes(), None)
    if not isinstance(private, ec.EllipticCurvePrivateKey):
        raise ValueError(f"{name}.key is of another kind")
    return made, private


def _subject(user: str, *groups: str) -> x509.Name:
    """Kubernetes takes the common name for the user and the organizations for the groups."""
    organizations = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups if group]
    return x509.Name([*organizations, x509.NameAttribute(NameOID.COMMON_NAME, user)])


def _names(hosts: Sequence[str]) -> list[x509.GeneralName]:
    names: list[x509.GeneralName] = []
    for host in hosts:
        try:
            names.append(x509.IPAddress(ipaddress.ip_address(host)))
        except ValueError:
            names.append(x509.DNSName(host))
    return names


def _private_pem(private: ec.EllipticCurvePrivateKey) -> bytes:
    return private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _keep_kubeconfig(paths: Paths, file: Path, server: str, certified: str, user: str, namespace: str = "") -> None:
    """Writes a kubeconfig unless it is there already.

    Args:
        paths: the stack's files.
        file: the kubeconfig.
        server: address of the API server.
        certified: name of the files of certificate and key.
        user: entry for them.
        namespace: of the context; ``default`` when empty.
    """
    try:
        text = _kubeconfig_text(paths, server, certified, user, namespace)
        if not file.exists() or file.read_text() != text:
            _write(file, text.encode())
    except OSError as error:
        raise unwritable(error, file) from error


def _kubeconfig_text(paths: Paths, server: str, certified: str, user: str, namespace: str) -> str:
    credentials = {
        "client-certificate-data": _base64(certificate(paths, certified)),
        "client-key-data": _base64(key(paths, certified)),
    }
    made = document(
        f"trn-{paths.root.name}", server, certificate_authority_data(paths), user, credentials, namespace=namespace
    )
    return json.dumps(made, indent=2) + "\n"


def _base64(file: Path) -> str:
    return base64.b64encode(file.read_bytes()).decode()


def _write(file: Path, content: bytes) -> None:
    """All of it or nothing, readable by its owner only from the first byte."""
    part = file.with_name(f"{file.name}.part")
    part.unlink(missing_ok=True)
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as opened:
        opened.write(content)
    part.replace(file)
