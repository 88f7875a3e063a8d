"""Certificates: whole, for the right names, kept while they can be used."""

import base64
import json
import stat
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from trainium_eks.local.control_plane import credentials, pki
from trainium_eks.local.paths import Paths

SERVER = "https://127.0.0.1:4321"
RANGE = "10.100.0.0/16"


@pytest.fixture
def paths(tmp_path):
    paths = Paths.of(tmp_path, "dev")
    assert pki.ensure(paths, RANGE)
    return paths


def read(paths, name):
    return x509.load_pem_x509_certificate(credentials.certificate(paths, name).read_bytes())


def test_certificates_have_names_purposes_authorities_and_last_a_year(paths):
    names = read(paths, "kube-apiserver").extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert {"kubernetes.default.svc", "localhost"} <= set(names.get_values_for_type(x509.DNSName))
    # This machine's loopback, the agent's relay in the pods' network, and the service `kubernetes`.
    addresses = ["127.0.0.1", "100.127.0.1", "10.100.0.1"]
    assert [str(each) for each in names.get_values_for_type(x509.IPAddress)] == addresses
    purposes = read(paths, "admin").extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(purposes) == [ExtendedKeyUsageOID.CLIENT_AUTH]
    for name, signs in (("ca", True), ("admin", False)):
        usage = read(paths, name).extensions.get_extension_for_class(x509.KeyUsage).value
        assert (usage.digital_signature, usage.key_cert_sign, usage.crl_sign) == (True, signs, signs)
        assert not usage.key_encipherment
    etcd = read(paths, "etcd-ca")
    read(paths, "etcd-client").verify_directly_issued_by(etcd)
    with pytest.raises(ValueError, match="issuer"):
        read(paths, "kube-scheduler").verify_directly_issued_by(etcd)
    for name in ("ca", "etcd-ca", "kube-apiserver", "admin"):
        left = read(paths, name).not_valid_after_utc - datetime.now(UTC)
        assert timedelta(days=364) < left <= timedelta(days=365)


@pytest.mark.parametrize(
    "name", ["ca.crt", "ca.key", "etcd-ca.key", "kube-apiserver.crt", "kwok.key", "service-account.key"]
)
def test_unusable_certificate_is_recreated(paths, name):
    file = paths.pki / name
    for spoil in (
        file.unlink,
        lambda: file.write_bytes(b""),
        lambda: file.write_bytes(file.read_bytes()[:100]),
        lambda: (file.unlink(), file.mkdir()),
    ):
        spoil()
        assert pki.ensure(paths, RANGE)
        assert not pki.ensure(paths, RANGE)


def test_mismatched_key_user_or_authority_is_noticed(tmp_path, paths):
    former = Paths.of(tmp_path, "former")
    pki.ensure(former, RANGE)
    for source, name, target, endings in (
        (paths, "admin", "kwok", ["key"]),
        (paths, "admin", "kube-scheduler", ["crt", "key"]),
        (former, "kube-apiserver", "kube-apiserver", ["crt", "key"]),
    ):
        for ending in endings:
            (paths.pki / f"{target}.{ending}").write_bytes((source.pki / f"{name}.{ending}").read_bytes())
        assert pki.ensure(paths, RANGE), (name, target)
        assert not pki.ensure(paths, RANGE)


@pytest.mark.parametrize(("valid_days", "renewed"), [(-1, True), (6, True), (8, False)])
def test_certificates_are_renewed_a_week_before_they_expire(paths, monkeypatch, valid_days, renewed):
    # The clock is what differs: in a year less some days.
    now = datetime.now(UTC) + pki.VALID - timedelta(days=valid_days)

    class Clock(datetime):
        @classmethod
        def now(cls, tz=None):  # noqa: ARG003 (the signature is datetime's)
            return now

    monkeypatch.setattr(pki, "datetime", Clock)
    assert pki.ensure(paths, RANGE) is renewed


def test_a_servers_certificate_is_kept_until_its_hosts_or_authority_change(paths):
    hosts = ["127.0.0.1", "webhook.svc"]
    certificate, key, authority = pki.serving_certificate(paths, "webhook", hosts)
    made = [certificate.read_bytes()]
    read(paths, "webhook").verify_directly_issued_by(x509.load_pem_x509_certificate(authority.read_bytes()))
    assert key.exists()
    for asked in (hosts, hosts[:1], None, hosts[:1]):
        if asked:
            pki.serving_certificate(paths, "webhook", asked)
            made.append(certificate.read_bytes())
        else:
            credentials.certificate(paths, "ca").unlink()
            pki.ensure(paths, RANGE)
    assert made[0] == made[1]
    assert len(set(made)) == 3


def test_researchers_kubeconfig_has_only_their_groups_and_is_kept(paths):
    file = pki.researcher_kubeconfig(paths, "team-a", ["a:readers", "a:researchers"], SERVER)
    subject = read(paths, "researcher-team-a").subject
    organizations = [each.value for each in subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)]
    assert organizations == ["a:readers", "a:researchers"]
    document = json.loads(file.read_text())
    (context,), (user,) = document["contexts"], document["users"]
    assert document["current-context"] == context["name"] == "trn-dev-team-a"
    assert context["context"] == {"cluster": "trn-dev", "user": "researcher@team-a", "namespace": "team-a"}
    decoded = base64.b64decode(user["user"]["client-certificate-data"])
    assert decoded == credentials.certificate(paths, "researcher-team-a").read_bytes()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    pki.researcher_kubeconfig(paths, "team-a", ["a:readers", "a:researchers"], SERVER)
    assert credentials.certificate(paths, "researcher-team-a").read_bytes() == decoded
    assert credentials.is_current(paths, SERVER, "team-a", ["a:readers", "a:researchers"])
    assert not credentials.is_current(paths, SERVER, "team-a", ["a:researchers"])
    pki.researcher_kubeconfig(paths, "team-a", ["a:researchers"], SERVER)
    assert credentials.certificate(paths, "researcher-team-a").read_bytes() != decoded
    assert pki.researcher_kubeconfig(paths, "n" * 63, [f"trainium-eks:{'n' * 63}:researchers"], SERVER).is_file()


@pytest.mark.parametrize("change", ["key", "authority", "server", "expiry", "missing"])
def test_outdated_researchers_kubeconfig_is_not_current(paths, monkeypatch, change):
    server = SERVER
    if change == "expiry":
        monkeypatch.setattr(pki, "RENEWED_BEFORE", 2 * pki.VALID)
    file = pki.researcher_kubeconfig(paths, "team-a", ["a:researchers"], SERVER)
    assert credentials.is_current(paths, SERVER, "team-a", ["a:researchers"]) is (change != "expiry")
    match change:
        case "key":
            credentials.key(paths, "researcher-team-a").write_text("another")
        case "authority":
            credentials.certificate(paths, "ca").write_text("another")
        case "server":
            server = "https://127.0.0.1:9"
        case "missing":
            file.unlink()
    assert not credentials.is_current(paths, server, "team-a", ["a:researchers"])


def test_a_program_acts_as_its_service_account(paths):
    pki.write_kubeconfigs(paths, SERVER)
    file = pki.service_account_kubeconfig(paths, "controllers", "n" * 63, "volcano-controllers")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    made, administrators = json.loads(file.read_text()), json.loads(credentials.kubeconfig(paths, "admin").read_text())
    assert made["users"][0]["user"].pop("as") == f"system:serviceaccount:{'n' * 63}:volcano-controllers"
    assert made == administrators
